/* Hands arrays of every type from Go to a consumer, and what the consumer makes of them back to Go, which compares.
 *
 *   consume GOLIB CONSUMER LIBRARY PASS [AFTER]
 *
 * CONSUMER is standin, or view or owning of LIBRARY, which is - for standin. A PASS is one of
 *
 *   cases     every job of the Go library, one after the other; those behind the job AFTER if it is given
 *   row       as many batches in a row as the variable KIT_ROW says
 *   threads   four threads, each with a stream of its own
 *   structure what the consumer makes of the structs alone, for which libcudf needs no GPU
 *   types     the same for arrays of every type that ForCuDF has not seen
 *   unwaited  an array without its event: what is read must be wrong, or the other passes prove nothing
 *
 * The file that the variable KIT_PROGRESS names has the job in progress. Exit status: 3 without a GPU, 4 where the GPU
 * does nothing any more. */
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "program.h"

namespace kit {

namespace {

/* The consumer of a kind, which is in a library unless it is the one that stands in. */
std::unique_ptr<Consumer> find_consumer(Driver& driver, const std::string& kind, const char* path) {
  if (kind == "standin") return make_standin(driver);
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) throw std::runtime_error(dlerror());
  auto make = reinterpret_cast<kit_make_consumer>(dlsym(library, "kit_cudf_consumer"));
  if (!make) throw std::runtime_error(dlerror());
  std::unique_ptr<Consumer> consumer(make(kind.c_str()));
  if (!consumer) throw std::runtime_error("no such consumer");
  return consumer;
}

}  // namespace

}  // namespace kit

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: consume GOLIB CONSUMER LIBRARY PASS [AFTER]\n");
    return 2;
  }
  std::string kind = argv[2];
  std::unique_ptr<kit::Driver> driver;
  try {
    driver = std::make_unique<kit::Driver>();
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return kit::kNoGPU;
  }
  try {
    if (std::string(argv[4]) == "load") {
      std::printf("%s, CUDA %d.%d\n", driver->name().c_str(), driver->version() / 1000, driver->version() % 1000 / 10);
      kit::find_consumer(*driver, kind, argv[3]);
      return 0;
    }
    kit::Golib golib(argv[1]);
    auto consumer = kit::find_consumer(*driver, kind, argv[3]);
    int status = kit::Program(*driver, golib, *consumer, kind).run(argv[4], argc > 5 ? argv[5] : "");
    std::fflush(stdout);
    std::_Exit(status);  // without the exit handlers of libraries, whose order is not ours
  } catch (const std::exception& e) {
    std::printf("FAIL %s/%s: %s\n", kind.c_str(), argv[4], e.what());
    return 1;
  }
}
