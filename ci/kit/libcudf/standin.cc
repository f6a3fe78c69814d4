/* The consumer that stands in for libcudf where that cannot run: it checks the rules that libcudf relies on without
 * checking them itself, and copies the array to the host by calls of the driver. */
#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "consumer.h"

namespace kit {

namespace {

/* libcudf reads bitmaps in words of 32 bits, and its own allocations are padded to 64 bytes. */
constexpr size_t kPadding = 64;
constexpr size_t kWord = 4;

/* The sizes of the values of the fixed-width types that libcudf has, by format. */
size_t width(const std::string& format) {
  static const std::map<std::string, size_t> widths = {
      {"c", 1}, {"C", 1}, {"s", 2}, {"S", 2}, {"i", 4}, {"I", 4}, {"l", 8}, {"L", 8}, {"f", 4}, {"g", 8}, {"tdD", 4},
  };
  auto found = widths.find(format);
  if (found != widths.end()) return found->second;
  if (format.rfind("ts", 0) == 0 || format.rfind("tD", 0) == 0) return 8;
  if (format.rfind("d:", 0) == 0) {
    auto last = format.rfind(',');
    if (std::count(format.begin(), format.end(), ',') < 2) return 16;
    return std::stoul(format.substr(last + 1)) / 8;
  }
  return 0;
}

/* An array in host memory, with those below it. */
struct HostArray {
  ArrowArray c{};
  std::vector<std::vector<uint8_t>> buffers;
  std::vector<const void*> pointers;
  std::vector<std::unique_ptr<HostArray>> children;
  std::vector<ArrowArray*> child_pointers;
  std::unique_ptr<HostArray> dictionary;

  void fill() {
    for (auto& b : buffers) pointers.push_back(b.empty() ? nullptr : b.data());
    for (auto& child : children) child_pointers.push_back(&child->c);
    c.n_buffers = pointers.size();
    c.buffers = pointers.data();
    c.n_children = children.size();
    c.children = child_pointers.data();
    c.dictionary = dictionary ? &dictionary->c : nullptr;
    c.release = [](ArrowArray* a) { a->release = nullptr; };
  }
};

/* Reader copies an array to the host, and notes what breaks a rule. */
class Reader {
 public:
  Reader(Driver& driver, Stream stream) : driver_(driver), stream_(stream) {}

  std::vector<std::string> faults;

  std::unique_ptr<HostArray> read(const std::string& path, const ArrowSchema& s, const ArrowArray& a) {
    path_ = path;
    auto out = std::make_unique<HostArray>();
    out->c.length = a.length;
    out->c.null_count = a.null_count;
    expect(a.length <= INT32_MAX, "length " + std::to_string(a.length));
    expect(a.offset == 0, "offset " + std::to_string(a.offset));
    const std::string format = s.format;
    if (format == "n") {
      expect(a.n_buffers == 0, "a null column has buffers");
    } else {
      out->buffers.push_back(bitmap(a));
      values(*out, format, a);
    }
    for (int64_t i = 0; i < a.n_children; i++) {
      out->children.push_back(read(path + "." + std::to_string(i), *s.children[i], *a.children[i]));
    }
    path_ = path;
    if (s.dictionary) {
      out->dictionary = read(path + ".dictionary", *s.dictionary, *a.dictionary);
      path_ = path;
      expect(a.dictionary->null_count == 0, "the dictionary has nulls");
    }
    below(*out, format);
    out->fill();
    return out;
  }

 private:
  void expect(bool holds, const std::string& fault) {
    if (!holds) faults.push_back(path_ + ": " + fault);
  }

  std::vector<uint8_t> read(const void* address, size_t size) { return driver_.read(address, size, stream_); }

  /* The bitmap, whose count of nulls must be exact, and which is read in whole words. */
  std::vector<uint8_t> bitmap(const ArrowArray& a) {
    const void* address = a.n_buffers > 0 ? a.buffers[0] : nullptr;
    expect(a.null_count >= 0, "null count " + std::to_string(a.null_count));
    if (!address) {
      expect(a.null_count <= 0, "null count " + std::to_string(a.null_count) + " without a bitmap");
      return {};
    }
    expect(reinterpret_cast<uintptr_t>(address) % kPadding == 0, "the bitmap is not aligned");
    size_t bytes = (a.length + 7) / 8, padded = (bytes + kPadding - 1) / kPadding * kPadding;
    size_t room = driver_.room(address);
    expect(room == 0 || room >= (bytes + kWord - 1) / kWord * kWord, "the bitmap ends in the middle of a word");
    auto bits = read(address, room ? std::min(room, padded) : bytes);
    int64_t valid = 0;
    for (size_t i = 0; i < bits.size() * 8; i++) {
      bool set = bits[i / 8] >> (i % 8) & 1;
      if (i < static_cast<size_t>(a.length)) {
        valid += set;
      } else if (set) {
        expect(false, "the padding of the bitmap is not zero");
        break;
      }
    }
    expect(a.length - valid == a.null_count,
           "null count " + std::to_string(a.null_count) + ", counted " + std::to_string(a.length - valid));
    return bits;
  }

  /* A buffer that libcudf dereferences if it has elements. */
  std::vector<uint8_t> buffer(const ArrowArray& a, int64_t index, size_t size) {
    const void* address = index < a.n_buffers ? a.buffers[index] : nullptr;
    if (size == 0) return {};
    expect(address, "buffer " + std::to_string(index) + " is NULL");
    if (!address) return {};
    expect(reinterpret_cast<uintptr_t>(address) % kPadding == 0, "buffer " + std::to_string(index) + " is not aligned");
    size_t room = driver_.room(address);
    expect(room == 0 || room >= size, "buffer " + std::to_string(index) + " is too short");
    return read(address, room ? std::min(room, size) : size);
  }

  void values(HostArray& out, const std::string& format, const ArrowArray& a) {
    if (format == "b") {
      out.buffers.push_back(buffer(a, 1, (a.length + 7) / 8));
    } else if (size_t size = width(format)) {
      out.buffers.push_back(buffer(a, 1, a.length * size));
    } else if (format == "u" || format == "+l") {
      offsets<int32_t>(out, a, format == "u");
    } else if (format == "U") {
      offsets<int64_t>(out, a, true);
    } else if (format == "vu") {
      views(out, a);
    } else {
      expect(format == "+s", "libcudf has no column for the format " + format);
    }
  }

  template <typename T>
  void offsets(HostArray& out, const ArrowArray& a, bool has_data) {
    size_t count = a.length ? a.length + 1 : 0;
    auto bytes = buffer(a, 1, count * sizeof(T));
    T last = 0;
    if (bytes.size() >= sizeof(T)) {
      std::memcpy(&last, &bytes[bytes.size() - sizeof(T)], sizeof(T));
      T first = 0;
      std::memcpy(&first, bytes.data(), sizeof(T));
      expect(first == 0, "the first offset is " + std::to_string(first));
      empty_nulls<T>(out.buffers[0], bytes, a.length);
    } else {
      bytes.resize(sizeof(T));
    }
    out.buffers.push_back(std::move(bytes));
    if (has_data) out.buffers.push_back(buffer(a, 2, last));
  }

  /* Lists and texts that are null must have no elements. */
  template <typename T>
  void empty_nulls(const std::vector<uint8_t>& bits, const std::vector<uint8_t>& offsets, int64_t length) {
    for (int64_t i = 0; i < length && !bits.empty(); i++) {
      T range[2];
      std::memcpy(range, &offsets[i * sizeof(T)], sizeof range);
      if (!(bits[i / 8] >> (i % 8) & 1) && range[0] != range[1]) {
        expect(false, "element " + std::to_string(i) + " is null and not empty");
        return;
      }
    }
  }

  void views(HostArray& out, const ArrowArray& a) {
    out.buffers.push_back(buffer(a, 1, a.length * 16));
    int64_t count = a.n_buffers - 3;
    expect(count >= 0, "a view has " + std::to_string(a.n_buffers) + " buffers");
    if (count <= 0) {
      out.buffers.emplace_back();
      return;
    }
    auto sizes = read(a.buffers[a.n_buffers - 1], count * sizeof(int64_t));
    for (int64_t i = 0; i < count; i++) {
      int64_t size = 0;
      std::memcpy(&size, &sizes[i * sizeof size], sizeof size);
      out.buffers.push_back(buffer(a, 2 + i, size));
    }
    out.buffers.push_back(std::move(sizes));
  }

  /* Elements below a struct that is null must be null. */
  void below(const HostArray& out, const std::string& format) {
    if (format != "+s" || out.buffers[0].empty()) return;
    for (size_t k = 0; k < out.children.size(); k++) {
      const HostArray& child = *out.children[k];
      if (child.buffers.empty()) continue;  // a null column
      for (int64_t i = 0; i < out.c.length; i++) {
        bool null = !(out.buffers[0][i / 8] >> (i % 8) & 1);
        bool child_null = !child.buffers[0].empty() && !(child.buffers[0][i / 8] >> (i % 8) & 1);
        if (null && !child_null) {
          expect(false, "element " + std::to_string(i) + " is null, and its child " + std::to_string(k) + " is not");
          return;
        }
      }
    }
  }

  Driver& driver_;
  Stream stream_;
  std::string path_;
};

class Standin : public Imported {
 public:
  Standin(Structs&& structs, Driver& driver, Stream stream)
      : structs_(std::move(structs)), driver_(driver), stream_(stream) {
    /* As libcudf does: sync_event is the address of a CUevent. */
    void** event = static_cast<void**>(structs_.array.sync_event);
    if (event) driver_.wait(stream_, *event);
  }

  std::vector<std::string> faults() override {
    Reader reader(driver_, stream_);
    host_ = reader.read("array", structs_.schema, structs_.array.array);
    const auto& a = structs_.array;
    auto known = {ARROW_DEVICE_CUDA, ARROW_DEVICE_CUDA_HOST, ARROW_DEVICE_CUDA_MANAGED};
    if (std::find(known.begin(), known.end(), a.device_type) == known.end()) {
      reader.faults.push_back("device type " + std::to_string(a.device_type));
    }
    if (a.device_id != 0) reader.faults.push_back("device " + std::to_string(a.device_id));
    if (a.reserved[0] || a.reserved[1] || a.reserved[2]) reader.faults.push_back("a reserved field is not 0");
    return reader.faults;
  }

  std::vector<std::string> structure(std::string& type) override {
    type = structs_.schema.format;
    return faults();
  }

  void to_host(Structs& out) override {
    if (!host_) faults();
    HostArray* root = host_.release();
    out.array.array = root->c;
    out.array.array.private_data = root;
    out.array.array.release = [](ArrowArray* a) {
      a->release = nullptr;
      delete static_cast<HostArray*>(a->private_data);
    };
    out.array.device_id = -1;
    out.array.device_type = ARROW_DEVICE_CPU;
  }

  /* Hands the array on. */
  void to_device(Structs& out) override {
    out.array = structs_.array;
    structs_.array.array.release = nullptr;
  }

 private:
  Structs structs_;
  Driver& driver_;
  Stream stream_;
  std::unique_ptr<HostArray> host_;
};

class StandinConsumer : public Consumer {
 public:
  explicit StandinConsumer(Driver& driver) : driver_(driver) {}
  std::unique_ptr<Imported> import(Structs&& structs, bool, Stream stream) override {
    return std::make_unique<Standin>(std::move(structs), driver_, stream);
  }

 private:
  Driver& driver_;
};

}  // namespace

std::unique_ptr<Consumer> make_standin(Driver& driver) { return std::make_unique<StandinConsumer>(driver); }

}  // namespace kit
