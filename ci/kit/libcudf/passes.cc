/* The passes that hand arrays over and compare what comes back. */
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <thread>

#include "program.h"

namespace kit {

namespace {

constexpr int kThreads = 4;

/* The outcomes of the jobs of one case. */
struct Tally {
  int jobs = 0, equal = 0, refused = 0;
  std::string refusal, changed;
};

}  // namespace

void Program::cases(const std::string& after) {
  Stream stream = driver_.stream();
  std::vector<std::string> order;
  std::map<std::string, Tally> tallies;
  bool skipping = !after.empty();
  for (auto& job : golib_.jobs()) {
    if (skipping) {
      skipping = job != after;
      continue;
    }
    progress(job);
    auto outcome = exchange(job, stream);
    auto name = case_of(job);
    if (!tallies.count(name)) order.push_back(name);
    auto& tally = tallies[name];
    tally.jobs++;
    if (!outcome.changed.empty()) tally.changed = outcome.changed;
    switch (outcome.verdict) {
      case Verdict::kEqual: tally.equal++; break;
      case Verdict::kRefused:
        tally.refused++;
        tally.refusal = outcome.text;
        break;
      case Verdict::kFailed:
        fail(job, outcome.text);
        if (lost_ > 3) {
          std::fflush(stdout);
          std::_Exit(kGPULost);
        }
    }
  }
  int refused = 0;
  for (auto& name : order) {
    auto& t = tallies[name];
    if (t.equal) ok(name, std::to_string(t.equal) + " arrays" + (t.changed.empty() ? "" : ", " + t.changed));
    if (!t.refused) continue;
    refused++;
    auto part = t.refused == t.jobs ? "" : " (" + std::to_string(t.refused) + " of " + std::to_string(t.jobs) + ")";
    if (kind_ == "standin") std::printf("ok refused %s%s: %s\n", name.c_str(), part.c_str(), t.refusal.c_str());
  }
  std::printf("%s: ForCuDF refuses %d of %zu cases\n", kind_.c_str(), refused, order.size());
  driver_.close(stream);
}

void Program::row() {
  Stream stream = driver_.stream();
  const char* wanted = std::getenv("KIT_ROW");
  int count = wanted ? std::atoi(wanted) : 1000, equal = 0;
  for (int i = 0; i < count && equal == i; i++) {
    auto job = "numbered/" + std::to_string(i) + "/table";
    progress(job);
    auto outcome = exchange(job, stream);
    if (outcome.verdict == Verdict::kEqual) {
      equal++;
    } else {
      fail("row", "batch " + std::to_string(i) + ": " + outcome.text);
    }
  }
  if (equal == count) ok("row", std::to_string(count) + " batches");
  driver_.close(stream);
}

void Program::threads() {
  std::vector<std::string> jobs;
  for (auto& job : golib_.jobs()) {
    if (job.find("/nulls/") != std::string::npos || job.find("/sliced/") != std::string::npos) jobs.push_back(job);
  }
  std::atomic<size_t> next{0}, equal{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; t++) {
    threads.emplace_back([&] {
      try {
        driver_.use();
        Stream stream = driver_.stream();
        for (size_t i = next++; i < 2 * jobs.size(); i = next++) {
          auto& job = jobs[i % jobs.size()];
          auto outcome = exchange(job, stream);
          if (outcome.verdict == Verdict::kFailed) {
            fail("threads/" + job, outcome.text);
            if (lost_ > 3) break;
          } else {
            (outcome.verdict == Verdict::kEqual ? equal : refused)++;
          }
        }
        driver_.close(stream);
      } catch (const std::exception& e) {
        fail("threads", e.what());
      }
    });
  }
  for (auto& t : threads) t.join();
  if (equal) ok("threads", std::to_string(equal) + " arrays in " + std::to_string(kThreads) + " threads");
}

void Program::unwaited() {
  Stream stream = driver_.stream();
  int wrong = 0;
  std::string text;
  /* The first import loads code and allocates, which may wait for the GPU. */
  auto first = exchange("int64/valid/column", stream);
  if (first.verdict != Verdict::kEqual) return fail("unwaited", first.text);
  for (int i = 0; i < 5; i++) {
    Structs structs, out;
    uint64_t number = 0;
    auto refused = golib_.make("int64/valid/column", structs, number);
    if (!refused.empty()) throw std::runtime_error(refused);
    structs.array.sync_event = nullptr;
    golib_.open_after(number, 100 * kDelay);
    {
      auto imported = consumer_.import(std::move(structs), false, stream);
      imported->to_host(out);
      driver_.synchronize(stream);
      std::string changed, different;
      if (!out.schema.release) golib_.schema(number, out.schema);
      try {
        different = golib_.compare(number, std::move(out), changed);
      } catch (const GoError& e) {
        different = e.what();
      }
      if (!different.empty()) {
        wrong++;
        text = different;
      }
    }
    golib_.end(number);
  }
  if (wrong) {
    ok("unwaited", "without its event an array is wrong in " + std::to_string(wrong) + " of 5 imports: " + text);
  } else {
    fail("unwaited", "an array without its event is right, so that a missing wait would not be seen");
  }
  driver_.close(stream);
}

}  // namespace kit
