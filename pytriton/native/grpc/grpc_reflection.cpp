// grpc.reflection.v1.ServerReflection, and v1alpha, which has the same messages: what is served, for clients without
// files of it.
#include "descriptors.h"
#include "grpc_routes.h"
#include "proto.h"

namespace pytriton::http {

namespace {

// Of the request: which of them is there says what is asked. Those between are of extensions, which there are none of.
constexpr unsigned kHost = 1, kFileByName = 3, kFileOfSymbol = 4, kServices = 7;
// Of the response.
constexpr unsigned kValidHost = 1, kOriginal = 2, kFiles = 4, kServiceList = 6, kFault = 7;

struct DescribedFile {
  std::string_view name, package, content;
  const DescribedFile* needs;
};
constexpr DescribedFile kConfigFile{"model_config.proto", "inference.", kModelConfigDescriptor, nullptr};
constexpr DescribedFile kDescribedFiles[] = {
    {"grpc_service.proto", "inference.", kServiceDescriptor, &kConfigFile},
    kConfigFile,
    {"grpc/health/v1/health.proto", "grpc.health.v1.", kHealthDescriptor, nullptr},
};
constexpr std::string_view kServiceNames[] = {"inference.GRPCInferenceService", "grpc.health.v1.Health"};

enum class Element { none, file, message, enumeration, service, member };

Element child_of(Element parent, unsigned field) {
  switch (parent) {
    case Element::file:
      return field == 4   ? Element::message
             : field == 5 ? Element::enumeration
             : field == 6 ? Element::service
                          : Element::none;
    case Element::message:
      return field == 2   ? Element::member
             : field == 3 ? Element::message
             : field == 4 ? Element::enumeration
                          : Element::none;
    case Element::enumeration:
    case Element::service:
      return field == 2 ? Element::member : Element::none;
    default:
      return Element::none;
  }
}

// Takes an element's name from a path such as "Message.field"; false: it is not there.
bool take_name(std::string_view element, std::string_view& path) {
  ProtoReader reader(element);
  while (const unsigned field = reader.next()) {
    if (field != 1) {
      reader.skip();
      continue;
    }
    const std::string_view name = reader.bytes();
    if (path.substr(0, name.size()) != name) return false;
    path.remove_prefix(name.size());
    if (path.empty()) return true;
    if (path.front() != '.') return false;
    path.remove_prefix(1);
    return !path.empty();
  }
  return false;
}

// Whether one of our descriptors, which are not deep, has a path in it.
bool declares(Element parent, std::string_view descriptor, std::string_view path) {  // NOLINT(misc-no-recursion)
  ProtoReader reader(descriptor);
  while (const unsigned field = reader.next()) {
    const Element child = child_of(parent, field);
    if (child == Element::none) {
      reader.skip();
      continue;
    }
    const std::string_view element = reader.bytes();
    std::string_view rest = path;
    if (take_name(element, rest) && (rest.empty() || declares(child, element, rest))) return true;
  }
  return false;
}

bool has_symbol(const DescribedFile& file, std::string_view symbol) {
  if (symbol.substr(0, file.package.size()) != file.package) return false;
  return declares(Element::file, file.content, symbol.substr(file.package.size()));
}

// The file that is asked for, with those that it needs; empty: there is none.
std::string files_of(unsigned asked, std::string_view value) {
  std::string files;
  for (const DescribedFile& each : kDescribedFiles) {
    const bool is_meant = asked == kFileByName ? each.name == value : asked == kFileOfSymbol && has_symbol(each, value);
    if (!is_meant) continue;
    for (const DescribedFile* file = &each; file; file = file->needs) ProtoWriter(files).bytes(1, file->content);
    break;
  }
  return files;
}

}  // namespace

std::string reflect(std::string_view request) {
  ProtoReader reader(request);
  std::string_view host, value;
  unsigned asked = 0;
  while (const unsigned field = reader.next()) {
    if (field == kHost) {
      host = reader.bytes();
    } else if (field >= kFileByName && field <= kServices) {
      asked = field;
      value = reader.bytes();
    } else {
      reader.skip();
    }
  }
  std::string text, inner;
  ProtoWriter writer(text), of(inner);
  if (!host.empty()) writer.bytes(kValidHost, host);
  writer.bytes(kOriginal, request);
  if (asked == kServices) {
    for (const std::string_view name : kServiceNames) {
      std::string entry;
      ProtoWriter(entry).bytes(1, name);
      of.bytes(1, entry);
    }
    writer.bytes(kServiceList, inner);
  } else if (const std::string files = files_of(asked, value); !files.empty()) {
    writer.bytes(kFiles, files);
  } else {
    of.varint(1, asked ? grpc::kNotFound : grpc::kInvalidArgument);
    of.bytes(2, asked ? "there is nothing of this name" : "the request asks for nothing");
    writer.bytes(kFault, inner);
  }
  return text;
}

}  // namespace pytriton::http
