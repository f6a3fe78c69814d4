#include "peer.h"

#include <arrow/c/bridge.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace peer {

Alive alive;
Counters counters;

char* Text(const std::string& text) { return strdup(text.c_str()); }

static std::string Hex(const std::string& bytes) {
  static const char* digits = "0123456789abcdef";
  std::string out;
  for (unsigned char b : bytes) {
    out += digits[b >> 4];
    out += digits[b & 15];
  }
  return out;
}

char* Answer(const arrow::Status& status) {
  if (status.ok()) return nullptr;
  std::ostringstream out;
  out << status.CodeAsString() << "\n";
  auto detail = std::dynamic_pointer_cast<arrow::AsyncErrorDetail>(status.detail());
  if (detail) {
    out << detail->code() << "\n" << Hex(detail->ErrorMetadataString());
  } else {
    out << "\n";
  }
  out << "\n" << status.message();
  return Text(out.str());
}

}  // namespace peer

extern "C" {

void cpp_free(void* text) { free(text); }

// Live objects and counters, as JSON.
char* cpp_alive() {
  std::ostringstream out;
  out << "{\"sources\": " << peer::alive.sources << ", \"readers\": " << peer::alive.readers
      << ", \"consumers\": " << peer::alive.consumers << ", \"producers\": " << peer::alive.producers
      << ", \"device_bytes\": " << peer::alive.device_bytes << "}";
  return peer::Text(out.str());
}

char* cpp_counters() {
  std::ostringstream out;
  out << "{\"sources_closed\": " << peer::counters.sources_closed
      << ", \"device_mappings\": " << peer::counters.device_mappings << "}";
  return peer::Text(out.str());
}
}
