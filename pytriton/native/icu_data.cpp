// ICU's data library without data, in place of one of 29 MB. libxml2, with which the server reads answers of cloud
// storage, was linked against ICU for encodings that neither libxml2 nor the C library knows. ICU finds nothing in an
// empty table of contents, and libxml2 then has the encodings of the other two.

#include <cstdint>

namespace {

struct alignas(16) EmptyData {
  std::uint16_t header_bytes = sizeof(EmptyData) - sizeof count;
  std::uint8_t magic[2] = {0xda, 0x27};
  std::uint16_t info_bytes = 20;
  std::uint16_t reserved = 0;
  std::uint8_t is_big_endian = 0;
  std::uint8_t is_ebcdic = 0;
  std::uint8_t character_bytes = 2;
  std::uint8_t unused = 0;
  char format[4] = {'C', 'm', 'n', 'D'};
  std::uint8_t format_version[4] = {1, 0, 0, 0};
  std::uint8_t data_version[4] = {3, 0, 0, 0};
  char comment[8] = {};
  std::uint32_t count = 0;
};

}  // namespace

// The name has ICU's version.
extern "C" __attribute__((visibility("default"))) const EmptyData PYTRITON_ICU_SYMBOL;
const EmptyData PYTRITON_ICU_SYMBOL{};
