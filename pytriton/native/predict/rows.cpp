#include "rows.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace pytriton::http {

namespace {

using simdjson::ondemand::array;
using simdjson::ondemand::json_type;
using simdjson::ondemand::object;

constexpr const char* kInstances = "instances";
constexpr size_t kMostInstances = 10'000;  // more are the application's, which refuses them

// The lists of a value, down to the elements, which `read` gets. Extents of -1 become those that are found.
template <typename Read>
bool read_lists(JsonValue value, std::vector<int64_t>& shape, size_t axis, const Read& read) {
  array list;
  if (value.get_array().get(list)) return false;
  int64_t count = 0;
  const bool is_last = axis + 1 == shape.size();
  for (auto each : list) {
    JsonValue item;
    if (each.get(item)) return false;
    if (!(is_last ? read(item) : read_lists(item, shape, axis + 1, read))) return false;
    ++count;
  }
  if (shape[axis] < 0) shape[axis] = count;
  return shape[axis] == count;
}

template <typename Read>
bool read_value(JsonValue value, const Field& field, std::vector<int64_t>& shape, const Read& read) {
  if (field.form == Field::Form::value || field.is_scalar) {
    shape = {1};
    return read(value);
  }
  if (field.form == Field::Form::list) {
    shape = {-1};
    return read_lists(value, shape, 0, read);
  }
  json_type type{};
  shape = field.dims;
  if (field.is_single && !value.type().get(type) && type != json_type::array) return read(value);
  if (!read_lists(value, shape, 0, read)) return false;
  // Below an empty list. The application does not know the rank of such arrays, except of numbers.
  if (std::count(shape.begin(), shape.end() - 1, 0) && (field.dtype == dtype::kBool || field.dtype == dtype::kBytes))
    return false;
  std::replace(shape.begin(), shape.end(), int64_t{-1}, int64_t{0});
  return true;
}

// Not an integer that a floating-point number does not hold: 64 bits cannot either, or it is -0.
bool is_exact(JsonValue& value, double number) {
  constexpr double kLargest = 9.2e18;
  if (number == 0 ? !std::signbit(number) : std::fabs(number) < kLargest) return true;
  return value.raw_json_token().find_first_of(".eE") != std::string_view::npos;
}

template <typename Item>
bool read_item(JsonValue& value, Bytes& to) {
  Wide<Item> number{};
  if (!read_number(value, number) || !fits<Item>(number)) return false;
  if constexpr (std::is_floating_point_v<Item>) {
    if (!is_exact(value, number)) return false;
  }
  to.append(static_cast<Item>(number));
  return true;
}

bool read_text(JsonValue& value, Bytes& to) {
  std::string_view text;
  if (value.get_string().get(text)) return false;
  to.append_string(text);
  return true;
}

bool read_data(JsonValue value, const Field& field, std::vector<int64_t>& shape, Bytes& to) {
  bool is_read = false;
  const auto read_numbers = [&](auto item) {
    is_read = read_value(value, field, shape, [&](JsonValue& each) { return read_item<decltype(item)>(each, to); });
  };
  if (visit_dtype(field.dtype, read_numbers)) return is_read;
  return read_value(value, field, shape, [&](JsonValue& each) { return read_text(each, to); });
}

class RowReader {
 public:
  explicit RowReader(const Signature& signature) : signature_(signature), is_given_(signature.inputs.size()) {}

  // False for a member whose value cannot be read.
  bool read_member(std::string_view name, JsonValue value) {
    const Field* field = signature_.input(name);
    if (!field) return false;
    const auto index = static_cast<size_t>(field - signature_.inputs.data());
    if (is_given_[index]) return false;
    is_given_[index] = true;
    bool is_null = false;
    if (value.is_null().get(is_null)) return false;
    if (is_null) return !field->is_required;
    if (!field->is_readable) return false;
    Row::Value& read = row_.values.emplace_back();
    read.field = field;
    return read_data(value, *field, read.shape, read.data);
  }

  // The row, once all members have been read.
  std::optional<Row> take() {
    for (size_t index = 0; index < signature_.inputs.size(); ++index)
      if (signature_.inputs[index].is_required && !is_given_[index]) return std::nullopt;
    if (row_.values.empty() && !signature_.inputs.empty() && !signature_.is_typed) return std::nullopt;
    std::sort(row_.values.begin(), row_.values.end(),
              [](const Row::Value& one, const Row::Value& other) { return one.field < other.field; });
    return std::move(row_);
  }

 private:
  const Signature& signature_;
  Row row_;
  std::vector<bool> is_given_;
};

bool read_instances(const Signature& signature, JsonValue value, Rows& rows) {
  const size_t most = std::min(kMostInstances, kMostGroups * static_cast<size_t>(signature.most_rows));
  array list;
  if (value.get_array().get(list)) return false;
  rows.is_batch = true;
  for (auto each : list) {
    object members;
    if (rows.each.size() == most || each.get_object().get(members)) return false;
    RowReader reader(signature);
    for (auto member : members) {
      std::string_view name;
      if (member.unescaped_key().get(name)) return false;
      JsonValue found;
      if (member.value().get(found) || !reader.read_member(name, found)) return false;
    }
    auto row = reader.take();
    if (!row) return false;
    rows.each.push_back(std::move(*row));
  }
  return !rows.each.empty();
}

bool read_object(const Signature& signature, object members, Rows& rows) {
  RowReader reader(signature);
  bool is_first = true;
  for (auto member : members) {
    std::string_view name;
    if (rows.is_batch || member.unescaped_key().get(name)) return false;  // nothing beside the instances
    JsonValue value;
    if (member.value().get(value)) return false;
    if (is_first && name == kInstances && !signature.input(name)) {
      if (!read_instances(signature, value, rows)) return false;
    } else if (!reader.read_member(name, value)) {
      return false;
    }
    is_first = false;
  }
  if (rows.is_batch) return true;
  auto row = reader.take();
  if (!row) return false;
  rows.each.push_back(std::move(*row));
  return true;
}

using Key = std::vector<int64_t>;

// The same for rows that can be one request.
Key key_of(const Signature& signature, const Row& row) {
  Key key;
  for (const Row::Value& value : row.values) {
    key.push_back(value.field - signature.inputs.data());
    key.insert(key.end(), value.shape.begin(), value.shape.end());
  }
  return key;
}

}  // namespace

std::optional<Rows> read_rows(const Signature& signature, std::string_view body) {
  JsonParser parser;
  simdjson::ondemand::document document;
  object members;
  Rows rows;
  if (parser.begin(body).get(document) || document.get_object().get(members)) return std::nullopt;
  if (!read_object(signature, members, rows) || !document.at_end()) return std::nullopt;
  return rows;
}

std::optional<std::vector<Group>> group_rows(const Signature& signature, const Rows& rows) {
  std::vector<Group> groups;
  std::map<Key, size_t> open;  // the last group of each kind
  for (size_t index = 0; index < rows.each.size(); ++index) {
    const auto [found, is_new] = open.try_emplace(key_of(signature, rows.each[index]), groups.size());
    if (is_new || groups[found->second].rows.size() == static_cast<size_t>(signature.most_rows)) {
      if (groups.size() == kMostGroups) return std::nullopt;
      found->second = groups.size();
      groups.emplace_back();
    }
    groups[found->second].rows.push_back(index);
  }
  return groups;
}

void add_inputs(InferenceRequest& request, Rows& rows, const Group& group, bool has_batch_axis) {
  Row& first = rows.each[group.rows[0]];
  request.inputs.reserve(first.values.size());
  for (size_t index = 0; index < first.values.size(); ++index) {
    Row::Value& value = first.values[index];
    for (size_t other = 1; other < group.rows.size(); ++other) {
      const Bytes& more = rows.each[group.rows[other]].values[index].data;
      value.data.append(more.data(), more.size());
    }
    Input& input = request.inputs.emplace_back();
    input.name = value.field->name;
    input.dtype = value.field->dtype;
    if (has_batch_axis) input.shape.push_back(static_cast<int64_t>(group.rows.size()));
    input.shape.insert(input.shape.end(), value.shape.begin(), value.shape.end());
    input.size = value.data.size();
    request.storage.push_back(value.data.take());
    input.data = request.storage.back().get();
  }
}

}  // namespace pytriton::http
