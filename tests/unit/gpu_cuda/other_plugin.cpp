// A CUDA plug-in of another build, whose C++ interface nothing may be assumed of.
#include <cstdlib>

extern "C" {

__attribute__((visibility("default"))) const char* TroupeCudaVersion() {
  return "troupe-cuda of another build";
}

__attribute__((visibility("default"))) void TroupeCudaOpen(const void*, void*) {
  std::abort();
}

}  // extern "C"
