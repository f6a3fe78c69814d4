#include "program.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace kit {

bool is_table(const std::string& job) {
  auto form = job.substr(job.rfind('/') + 1);
  return form == "table" || form == "cut";
}

std::string case_of(const std::string& job) { return job.substr(0, job.find('/')); }

namespace {

constexpr int kSame = 5;  // lines with one reason

/* A line has no other lines in it: exceptions and panics may. */
std::string line(std::string text) {
  for (auto& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

}  // namespace

void Program::ok(const std::string& name, const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::printf("ok %s/%s: %s\n", kind_.c_str(), name.c_str(), line(text).c_str());
  std::fflush(stdout);
}

void Program::fail(const std::string& name, const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  failures_++;
  if (++reasons_[text] > kSame) {
    repeated_++;
    return;
  }
  std::printf("FAIL %s/%s: %s\n", kind_.c_str(), name.c_str(), line(text).c_str());
  std::fflush(stdout);
}

void Program::progress(const std::string& job) {
  const char* path = std::getenv("KIT_PROGRESS");
  if (!path) return;
  if (FILE* f = std::fopen(path, "w")) {
    std::fprintf(f, "%s\n", job.c_str());
    std::fclose(f);
  }
}

Outcome Program::exchange(const std::string& job, Stream stream) {
  Structs structs;
  uint64_t number = 0;
  try {
    auto refused = golib_.make(job, structs, number);
    if (!refused.empty()) return {Verdict::kRefused, refused, ""};
    lost_ = 0;
  } catch (const std::exception& e) {
    lost_++;
    return {Verdict::kFailed, std::string("made on the GPU: ") + e.what(), ""};
  }
  Outcome outcome = consume(job, number, std::move(structs), stream);
  try {
    golib_.end(number);
  } catch (const std::exception& e) {
    if (outcome.verdict == Verdict::kEqual) outcome = {Verdict::kFailed, std::string("the end: ") + e.what(), ""};
  }
  return outcome;
}

Outcome Program::consume(const std::string& job, uint64_t number, Structs&& structs, Stream stream) {
  std::string step = "import";
  try {
    golib_.open_after(number, kDelay);
    attempts_++;
    auto imported = consumer_.import(std::move(structs), is_table(job), stream);
    imports_++;
    if (golib_.is_held(number)) pending_++;
    step = "inspect";
    auto faults = imported->faults();
    if (!faults.empty()) {
      std::string text;
      for (auto& fault : faults) text += (text.empty() ? "" : "; ") + fault;
      return {Verdict::kFailed, text, ""};
    }
    step = "to the host";
    auto outcome = give_back(*imported, number, false, stream);
    if (outcome.verdict != Verdict::kEqual) return outcome;
    step = "to the device";
    outcome = give_back(*imported, number, true, stream);
    step = "release";
    imported.reset();
    driver_.synchronize(stream);
    return outcome;
  } catch (const std::exception& e) {
    return {Verdict::kFailed, step + ": " + e.what(), ""};
  }
}

Outcome Program::give_back(Imported& imported, uint64_t number, bool device, Stream stream) {
  Structs out;
  device ? imported.to_device(out) : imported.to_host(out);
  if (!device) driver_.synchronize(stream);
  if (!out.schema.release) golib_.schema(number, out.schema);
  Outcome outcome{Verdict::kEqual, "", ""};
  auto different = golib_.compare(number, std::move(out), outcome.changed);
  if (!different.empty()) return {Verdict::kFailed, (device ? "on the device: " : "on the host: ") + different, ""};
  return outcome;
}

/* Fails unless as much is alive as before. Frees may be pending for a moment. The owning wrappers of libcudf take
 * schemas and release none of them: then each import leaves one block, unless it is refused early. */
void Program::releases(const std::string& before, int64_t blocks_before) {
  std::string now;
  int64_t blocks = 0;
  for (int i = 0; i < 100; i++) {
    now = golib_.live(blocks);
    blocks -= blocks_before;
    if (now == before && blocks == 0) return ok("releases", "as much is alive as before");
    if (now == before && kind_ == "owning" && blocks > 0 && blocks <= attempts_) {
      return ok("releases",
                "as much is alive as before, besides " + std::to_string(blocks) + " schemas: libcudf keeps them");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  fail("releases", "alive: " + now + " and " + std::to_string(blocks) + " blocks of C memory more, before: " + before);
}

int Program::run(const std::string& pass, const std::string& after) {
  try {
    driver_.use();
    int64_t blocks = 0;
    auto before = golib_.live(blocks);
    if (pass == "cases") {
      cases(after);
    } else if (pass == "row") {
      row();
    } else if (pass == "threads") {
      threads();
    } else if (pass == "unwaited") {
      unwaited();
    } else if (pass == "structure") {
      structure();
    } else if (pass == "types") {
      types();
    } else {
      throw std::runtime_error("no such pass");
    }
    releases(before, blocks);
    if (imports_) {
      std::printf("%s/%s: of %d imports, %d returned while the work that fills the array was held back\n",
                  kind_.c_str(), pass.c_str(), imports_.load(), pending_.load());
      if (!pending_ && pass == "cases") fail(pass + "/pending", "each import waited");
    }
  } catch (const std::exception& e) {
    fail(pass, e.what());
  }
  if (repeated_) std::printf("FAIL %s/%s: %d more with the same reasons\n", kind_.c_str(), pass.c_str(), repeated_);
  return failures_ ? 1 : 0;
}

}  // namespace kit
