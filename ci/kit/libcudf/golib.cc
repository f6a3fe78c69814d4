#include "golib.h"

#include <dlfcn.h>

#include <sstream>

namespace kit {

namespace {

uintptr_t address(void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

template <typename F>
void Golib::find(F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(library_, name));
  if (!function) throw GoError(std::string("the Go library has no ") + name);
}

Golib::Golib(const char* path) {
  library_ = dlopen(path, RTLD_NOW);
  if (!library_) throw GoError(dlerror());
  find(free_, "kit_free");
  find(jobs_, "kit_jobs");
  find(make_, "kit_make");
  find(schema_, "kit_schema");
  find(open_after_, "kit_open_after");
  find(is_held_, "kit_is_held");
  find(compare_, "kit_compare");
  find(end_, "kit_end");
  find(make_raw_, "kit_make_raw");
  find(live_, "kit_live");
}

std::string Golib::take(char* text) {
  std::string out = text ? text : "";
  if (text) free_(text);
  return out;
}

void Golib::check(char* error) {
  if (error) throw GoError(take(error));
}

std::vector<std::string> Golib::jobs() {
  char* text = nullptr;
  check(jobs_(&text));
  std::istringstream lines(take(text));
  std::vector<std::string> jobs;
  for (std::string line; std::getline(lines, line);) jobs.push_back(line);
  return jobs;
}

std::string Golib::make(const std::string& job, Structs& out, uint64_t& exchange) {
  char* refused = nullptr;
  check(make_(job.c_str(), address(&out.array), address(&out.schema), &exchange, &refused));
  return take(refused);
}

void Golib::schema(uint64_t exchange, ArrowSchema& out) { check(schema_(exchange, address(&out))); }

void Golib::open_after(uint64_t exchange, int64_t microseconds) { check(open_after_(exchange, microseconds)); }

bool Golib::is_held(uint64_t exchange) {
  int held = 0;
  check(is_held_(exchange, &held));
  return held;
}

std::string Golib::compare(uint64_t exchange, Structs&& structs, std::string& changed) {
  Structs taken(std::move(structs));
  char *change = nullptr, *different = nullptr;
  check(compare_(exchange, address(&taken.array), address(&taken.schema), &change, &different));
  changed = take(change);
  return take(different);
}

void Golib::end(uint64_t exchange) { check(end_(exchange)); }

void Golib::make_raw(const std::string& job, Structs& out) {
  check(make_raw_(job.c_str(), address(&out.array), address(&out.schema)));
}

std::string Golib::live(int64_t& blocks) {
  char* text = nullptr;
  check(live_(&text, &blocks));
  return take(text);
}

}  // namespace kit
