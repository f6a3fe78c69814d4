/* The passes that ask a consumer about structs without reading their memory. libcudf answers them without a GPU, except
 * where it starts work on the device. */
#include <cstdio>
#include <map>

#include "program.h"

namespace kit {

namespace {

/* Reports whether an exception of libcudf is about the GPU that is missing, and not about the structs. */
bool needs_gpu(const std::string& text) { return text.find("CUDA error") != std::string::npos; }

struct Count {
  int right = 0, need_gpu = 0;
  std::string type;
};

}  // namespace

void Program::structure() {
  Stream stream = driver_.stream();
  std::map<std::string, Count> counts;
  for (auto& job : golib_.jobs()) {
    progress(job);
    Structs structs;
    uint64_t number = 0;
    if (!golib_.make(job, structs, number).empty()) continue;
    golib_.open_after(number, 0);
    structs.array.sync_event = nullptr;  // for which libcudf needs a GPU
    auto& count = counts[case_of(job)];
    try {
      attempts_++;
      auto imported = consumer_.import(std::move(structs), is_table(job), stream);
      for (auto& fault : imported->structure(count.type)) fail("structure/" + job, fault);
      count.right++;
    } catch (const std::exception& e) {
      if (needs_gpu(e.what())) {
        count.need_gpu++;
      } else {
        fail("structure/" + job, e.what());
      }
    }
    golib_.end(number);
  }
  for (auto& [name, count] : counts) {
    auto more = count.need_gpu ? ", " + std::to_string(count.need_gpu) + " more need a GPU" : "";
    if (count.right) ok("structure/" + name, std::to_string(count.right) + " arrays as " + count.type + more);
  }
  driver_.close(stream);
}

/* What the consumer says to arrays of every type that did not go through ForCuDF, and which of those that it takes
 * ForCuDF refuses. */
void Program::types() {
  Stream stream = driver_.stream();
  int taken = 0, refused = 0;
  std::string stricter;
  for (auto& job : golib_.jobs()) {
    auto name = case_of(job);
    if (job != name + "/nulls/column") continue;
    progress(job);
    Structs structs;
    golib_.make_raw(job, structs);
    const std::string format = structs.schema.format;
    structs.array.sync_event = nullptr;
    std::string answer;
    try {
      attempts_++;
      auto imported = consumer_.import(std::move(structs), false, stream);
      imported->structure(answer);
      answer = "taken as " + answer;
      taken++;
    } catch (const std::exception& e) {
      answer = needs_gpu(e.what()) ? "taken; the rest needs a GPU" : std::string("refused: ") + e.what();
      (needs_gpu(e.what()) ? taken : refused)++;
    }
    if (answer.rfind("taken", 0) == 0 && refuses(job)) stricter += " " + name;
    std::printf("%s: %s (format %s): %s\n", kind_.c_str(), name.c_str(), format.c_str(), answer.c_str());
  }
  ok("types",
     std::to_string(taken) + " types taken and " + std::to_string(refused) + " refused without ForCuDF, see above");
  std::printf("%s: taken, and refused by ForCuDF:%s\n", kind_.c_str(), stricter.empty() ? " none" : stricter.c_str());
  driver_.close(stream);
}

/* Reports whether ForCuDF refuses the array of a job. */
bool Program::refuses(const std::string& job) {
  Structs structs;
  uint64_t number = 0;
  if (!golib_.make(job, structs, number).empty()) return true;
  golib_.end(number);
  return false;
}

}  // namespace kit
