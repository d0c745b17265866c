#include "predict_rows.h"

#include <algorithm>
#include <map>

#include "json_elements.h"
#include "predict_elements.h"

namespace pytriton::http {

namespace {

using simdjson::ondemand::array;
using simdjson::ondemand::json_type;
using simdjson::ondemand::object;

constexpr size_t kFirstCapacity = 64;
constexpr const char* kInstances = "instances";

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
  switch (field.form) {
    case Field::Form::value:
      shape = {1};
      return read(value);
    case Field::Form::list:
      shape = {-1};
      if (!read_lists(value, shape, 0, read)) return false;
      return static_cast<uint64_t>(shape[0]) >= field.constraints.min_items &&
             static_cast<uint64_t>(shape[0]) <= field.constraints.max_items;
    case Field::Form::array: {
      json_type type{};
      shape = field.dims;
      if (field.is_scalar) shape = {1};
      if (field.is_scalar || (field.is_single && !value.type().get(type) && type != json_type::array))
        return read(value);
      if (!read_lists(value, shape, 0, read)) return false;
      // Below an empty list. The application does not know the rank of such arrays, except of numbers.
      if (std::count(shape.begin(), shape.end() - 1, 0) &&
          (field.dtype == dtype::kBool || field.dtype == dtype::kBytes))
        return false;
      std::replace(shape.begin(), shape.end(), int64_t{-1}, int64_t{0});
      return true;
    }
    default:
      return false;
  }
}

bool read_data(JsonValue value, const Field& field, std::vector<int64_t>& shape, Bytes& to) {
  bool is_read = false;
  const auto read_with = [&](auto element) {
    is_read = read_value(value, field, shape, [&](JsonValue& each) { return element(each, field, to); });
  };
  visit_elements(field, read_with);
  return is_read;
}

class RowReader {
 public:
  explicit RowReader(const Fields& fields) : fields_(fields), is_given_(fields.inputs.size()) {}

  // False for a member whose value cannot be read.
  bool read_member(std::string_view name, JsonValue value) {
    const Field* field = fields_.input(name);
    if (!field) return false;
    const auto index = static_cast<size_t>(field - fields_.inputs.data());
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
    for (size_t index = 0; index < fields_.inputs.size(); ++index)
      if (fields_.inputs[index].is_required && !is_given_[index]) return std::nullopt;
    if (row_.values.empty() && !fields_.inputs.empty() && !fields_.is_typed) return std::nullopt;
    std::sort(row_.values.begin(), row_.values.end(),
              [](const Row::Value& one, const Row::Value& other) { return one.field < other.field; });
    return std::move(row_);
  }

 private:
  const Fields& fields_;
  Row row_;
  std::vector<bool> is_given_;
};

bool read_instances(const Fields& fields, JsonValue value, Question& question) {
  const size_t most = kMostGroups * static_cast<size_t>(fields.most_rows);
  array list;
  if (value.get_array().get(list)) return false;
  question.is_batch = true;
  for (auto each : list) {
    object members;
    if (question.rows.size() == most || each.get_object().get(members)) return false;
    RowReader reader(fields);
    for (auto member : members) {
      std::string_view name;
      if (member.unescaped_key().get(name)) return false;
      JsonValue found;
      if (member.value().get(found) || !reader.read_member(name, found)) return false;
    }
    auto row = reader.take();
    if (!row) return false;
    question.rows.push_back(std::move(*row));
  }
  return !question.rows.empty();
}

bool read_object(const Fields& fields, object members, Question& question) {
  RowReader reader(fields);
  bool is_first = true;
  for (auto member : members) {
    std::string_view name;
    if (question.is_batch || member.unescaped_key().get(name)) return false;  // nothing beside the instances
    JsonValue value;
    if (member.value().get(value)) return false;
    if (is_first && name == kInstances && !fields.input(name)) {
      if (!read_instances(fields, value, question)) return false;
    } else if (!reader.read_member(name, value)) {
      return false;
    }
    is_first = false;
  }
  if (question.is_batch) return true;
  auto row = reader.take();
  if (!row) return false;
  question.rows.push_back(std::move(*row));
  return true;
}

using Key = std::vector<int64_t>;

// The same for rows that can be one request.
Key key_of(const Fields& fields, const Row& row) {
  Key key;
  for (const Row::Value& value : row.values) {
    key.push_back(value.field - fields.inputs.data());
    key.insert(key.end(), value.shape.begin(), value.shape.end());
  }
  return key;
}

}  // namespace

void Bytes::append(const void* data, size_t size) {
  if (capacity_ - size_ < size) grow(size);
  if (size) std::memcpy(memory_.get() + size_, data, size);
  size_ += size;
}

void Bytes::grow(size_t more) {
  const size_t capacity = std::max({kFirstCapacity, 2 * capacity_, size_ + more});
  Memory larger = allocate(capacity);
  if (size_) std::memcpy(larger.get(), memory_.get(), size_);
  memory_ = std::move(larger);
  capacity_ = capacity;
}

std::optional<Question> read_question(const Fields& fields, std::string_view body) {
  JsonParser parser;
  simdjson::ondemand::document document;
  object members;
  Question question;
  if (parser.begin(body).get(document) || document.get_object().get(members)) return std::nullopt;
  if (!read_object(fields, members, question) || !document.at_end()) return std::nullopt;
  return question;
}

std::optional<std::vector<Group>> group_rows(const Fields& fields, const Question& question) {
  std::vector<Group> groups;
  std::map<Key, size_t> open;  // the last group of each kind
  for (size_t index = 0; index < question.rows.size(); ++index) {
    const auto [found, is_new] = open.try_emplace(key_of(fields, question.rows[index]), groups.size());
    if (is_new || groups[found->second].rows.size() == static_cast<size_t>(fields.most_rows)) {
      if (groups.size() == kMostGroups) return std::nullopt;
      found->second = groups.size();
      groups.emplace_back();
    }
    groups[found->second].rows.push_back(index);
  }
  return groups;
}

void add_inputs(InferenceRequest& request, Question& question, const Group& group, bool has_batch_axis) {
  Row& first = question.rows[group.rows[0]];
  request.inputs.reserve(first.values.size());
  for (size_t index = 0; index < first.values.size(); ++index) {
    Row::Value& value = first.values[index];
    for (size_t other = 1; other < group.rows.size(); ++other) {
      const Bytes& more = question.rows[group.rows[other]].values[index].data;
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
