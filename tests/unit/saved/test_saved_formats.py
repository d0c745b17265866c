"""Files of each format, made by its own library, loaded and called in this process."""

import json
import logging

import numpy as np
import pytest

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config import ModelConfig
from pytriton.saved import load
from pytriton.signature.problems import ValueMismatchError
from pytriton.signature.schema import Signature
from tests.unit.saved.files import COLUMNS, FORMATS, iris, logistic_regression, of_xgboost, record, table, write_onnx

pytestmark = pytest.mark.filterwarnings("default")  # of other libraries


@pytest.fixture(params=FORMATS, scope="module")
def saved(request, tmp_path_factory):
    return FORMATS[request.param](tmp_path_factory.mktemp("saved"))


def batch_of(saved, rows):
    """The arrays of a batch, of shape ``(rows, ...)``."""
    values = [saved.values(row) for row in rows]
    dtypes = {"x": np.float32}
    arrays = {name: np.array([each[name] for each in values], dtypes.get(name)) for name in values[0]}
    return {name: array if array.ndim > 1 else array[:, np.newaxis] for name, array in arrays.items()}


def test_a_batch_is_answered_as_the_library_does(saved):
    rows, _ = iris()
    outputs = load(saved.path, **saved.options).predict(batch_of(saved, rows[::10]))
    expected = saved.answer(rows[::10])
    assert outputs.keys() == expected.keys()
    for name, values in expected.items():
        if outputs[name].dtype == object:
            assert [text.decode() for text in outputs[name].ravel()] == values.tolist()
        else:
            np.testing.assert_array_equal(outputs[name].reshape(values.shape), values)


def test_the_call_takes_the_values_of_a_row(saved):
    rows, _ = iris()
    model = load(saved.path, **saved.options)
    result = model(**saved.values(rows[77]))
    expected = {name: np.asarray(values)[0] for name, values in saved.answer(rows[77:78]).items()}
    result = {"result": result} if [*expected] == ["result"] else result
    assert {name: np.asarray(value).tolist() for name, value in result.items()} == {
        name: value.tolist() for name, value in expected.items()
    }


def test_its_example_is_one_that_it_answers_and_the_first_warm_up(saved):
    model = load(saved.path, **saved.options)
    (example,) = model.signature.examples
    again = model(**example["input"])
    assert json.loads(json.dumps(again, default=np.ndarray.tolist)) == example["output"]
    (warmup,) = model.derived(ModelConfig()).config.model_warmup
    assert warmup.batch_size == 1


def test_the_signature_goes_into_the_models_configuration(saved):
    model = load(saved.path, **saved.options)
    derived = model.derived(ModelConfig(max_batch_size=16))
    (text,) = derived.parameters.values()
    assert Signature.parse(text) == Signature.parse(model.signature.to_json())
    assert [tensor.name for tensor in derived.inputs] == [*model.signature.inputs]
    assert derived.config.max_batch_size == 16
    assert model.most_rows == 4096


UNSQUEEZE = "axis = Constant <value_ints = [2]>()\ny = Unsqueeze(x, axis)"


@pytest.mark.parametrize(
    ("inputs", "outputs", "body", "rows"),
    [
        ("float[n, 1024] x", "float[n, 1024] y", "y = Add(x, x)", 4096),
        ("float[n] x, int64[n, 1] i", "float[n] y, int64[n, 1] j", "y = Add(x, x)\nj = Add(i, i)", 4096),
        ("float[n, 1025] x", "float[n, 1025] y", "y = Add(x, x)", 128),
        ("float[n, 3, 8, 8] x", "float[n, 3, 8, 8] y", "y = Add(x, x)", 128),
        ("int64[n, 16] x", "int64[n, 16] y", "y = Add(x, x)", 128),
        ("float[n, w] x", "float[n, w] y", "y = Add(x, x)", 128),
        ("float[n, 4] x", "float[n, 4, 1] y", UNSQUEEZE, 128),
    ],
)
def test_a_call_of_a_network_takes_many_rows_if_they_are_those_of_a_table(tmp_path, inputs, outputs, body, rows):
    write_onnx(tmp_path / "m.onnx", inputs, outputs, body)
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    assert load(tmp_path / "m.onnx", sizes_batches=True).derived(ModelConfig()).config.max_batch_size == rows


def test_the_log_says_what_a_file_is_and_how_many_threads_a_call_has(saved, caplog):
    with caplog.at_level(logging.INFO, "pytriton.saved"):
        load(saved.path, **saved.options, threads=3)
    assert caplog.messages[-1].startswith(f"{saved.path}: ")
    assert caplog.messages[-1].endswith("; threads for a call: 3.")


def test_a_worker_process_gives_a_call_its_share_of_threads(saved, caplog, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    with caplog.at_level(logging.INFO, "pytriton.saved"):
        load(saved.path, **saved.options)
    assert caplog.messages[-1].endswith("; threads for a call: 5.")


# scikit-learn


def dumped(model, folder):
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    joblib.dump(model, folder / "model.joblib")
    return folder / "model.joblib"


def test_columns_of_a_table_are_inputs_of_their_own(tmp_path):
    model = load(dumped(logistic_regression(), tmp_path), trust=True)
    assert model.signature.inputs == {name: {"type": "number"} for name in COLUMNS}
    assert model(**record(iris()[0][0])) == "setosa"


def test_more_columns_than_a_hundred_are_one_array(tmp_path):
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    model = linear.LinearRegression().fit(np.eye(101), np.arange(101.0))
    saved = load(dumped(model, tmp_path), trust=True)
    assert saved.signature.inputs == {"features": {"type": "array", "dtype": "FP64", "shape": [101]}}
    assert saved(features=np.eye(101)[7]) == pytest.approx(7)


def test_columns_of_texts_are_known_by_their_encoder(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    compose = pytest.importorskip("sklearn.compose", reason="scikit-learn is not installed")
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    columns = compose.ColumnTransformer([("city", OneHotEncoder(), ["city"])], remainder="passthrough")
    data = pandas.DataFrame({"city": ["Rome", "Oslo", "Rome"], "rooms": [1, 2, 3]})
    model = make_pipeline(columns, Ridge()).fit(data, [1.0, 2.0, 3.0])
    saved = load(dumped(model, tmp_path), trust=True)
    assert saved.signature.inputs == {"city": {"type": "string"}, "rooms": {"type": "number"}}
    assert saved(city="Oslo", rooms=2) == model.predict(data)[1]


def test_a_vectorizer_of_texts_takes_a_text(tmp_path):
    text = pytest.importorskip("sklearn.feature_extraction.text", reason="scikit-learn is not installed")
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(text.TfidfVectorizer(), MultinomialNB()).fit(["good day", "bad day"], ["good", "bad"])
    saved = load(dumped(model, tmp_path), trust=True, method="predict_proba")
    assert saved.signature.inputs == {"text": {"type": "string"}}
    assert saved(text="a good one") == dict(zip(["bad", "good"], model.predict_proba(["a good one"])[0], strict=True))


def test_a_sparse_result_becomes_an_array(tmp_path):
    text = pytest.importorskip("sklearn.feature_extraction.text", reason="scikit-learn is not installed")
    saved = load(dumped(text.CountVectorizer().fit(["a good day"]), tmp_path), trust=True)
    assert saved.contents.method == "transform"
    assert saved(text="good good").tolist() == [0, 2]


def test_a_method_that_a_model_lacks_is_refused_with_those_that_it_has(tmp_path):
    with pytest.raises(PyTritonValidationError, match="has no method 'embed'; it has predict, predict_proba"):
        load(dumped(logistic_regression(), tmp_path), trust=True, method="embed")


def test_types_may_be_told_in_place_of_the_files(tmp_path):
    path = dumped(logistic_regression(), tmp_path)
    saved = load(path, trust=True, inputs={"petal width": "float32"})
    assert saved.signature.inputs["petal width"] == {"type": "number", "dtype": "FP32"}
    with pytest.raises(PyTritonValidationError, match="has no input 'weight'; it has sepal length"):
        load(path, trust=True, inputs={"weight": "float32"})
    with pytest.raises(PyTritonValidationError, match="is not NAME:DTYPE"):
        load(path, trust=True, inputs={"petal width": "number"})


def test_a_column_may_be_told_to_have_texts(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is not installed")
    data = pandas.DataFrame({"city": ["Rome", "Oslo"]})
    encoder = preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    path = dumped(encoder.fit(data), tmp_path)
    saved = load(path, trust=True, inputs={"city": "string"})
    assert saved.signature.inputs == {"city": {"type": "string"}}
    assert saved(city="Oslo") == 0


# MLflow


def test_a_signature_of_arrays_is_one_of_arrays(tmp_path):
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    import mlflow.sklearn
    from mlflow.models import infer_signature

    model, (rows, _) = logistic_regression(named=False), iris()
    signature = infer_signature(rows, model.predict_proba(rows))
    mlflow.sklearn.save_model(
        model, tmp_path / "m", signature=signature, pyfunc_predict_fn="predict_proba", pip_requirements=[]
    )
    saved = load(tmp_path / "m", trust=True)
    assert saved.signature.inputs == {"features": {"type": "array", "dtype": "FP64", "shape": [4]}}
    np.testing.assert_array_equal(saved.predict({"features": rows[:9]})["result"], model.predict_proba(rows[:9]))


def test_a_folder_without_signature_is_refused(tmp_path):
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    import mlflow.sklearn

    mlflow.sklearn.save_model(logistic_regression(), tmp_path / "m", pip_requirements=[])
    with pytest.raises(PyTritonValidationError, match="has no signature; log the model with signature="):
        load(tmp_path / "m", trust=True)


# XGBoost


def test_xgboost_has_its_margins_and_its_json(tmp_path):
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
    booster = xgboost.Booster(model_file=of_xgboost(tmp_path).path)
    booster.save_model(tmp_path / "trees.json")
    rows, _ = iris()
    expected = booster.predict(xgboost.DMatrix(table(rows[:1])), output_margin=True)
    assert load(tmp_path / "trees.json", method="margin")(**record(rows[0])).tolist() == expected[0].tolist()


# ONNX


def test_open_axes_stay_open(tmp_path):
    write_onnx(tmp_path / "m.onnx", "float[n, 3, h, w] x", "float[n, 3, h, w] y", "y = Relu(x)")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = load(tmp_path / "m.onnx")
    assert model.signature.inputs["x"]["shape"] == model.signature.outputs["y"]["shape"] == [3, -1, -1]
    assert model.predict({"x": np.ones((2, 3, 5, 7), np.float32)})["y"].shape == (2, 3, 5, 7)


def test_texts_go_in_and_out(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    write_onnx(tmp_path / "m.onnx", "string[n] x", "string[n] y", "y = Identity(x)")
    assert load(tmp_path / "m.onnx")(x="Rhône") == {"y": "Rhône"}


def test_without_an_open_first_axis_there_is_no_batch_axis(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    write_onnx(tmp_path / "m.onnx", "float[1, 4] x, float k", "float[1, 4] y", "y = Mul(x, k)")
    model = load(tmp_path / "m.onnx")
    assert not model.contents.batching
    assert not model.derived(ModelConfig()).config.batching
    assert model.signature.inputs == {
        "x": {"type": "array", "dtype": "FP32", "shape": [1, 4]},
        "k": {"type": "number", "dtype": "FP32"},
    }
    assert model(x=[[1, 2, 3, 4]], k=2)["y"].tolist() == [[2, 4, 6, 8]]


@pytest.mark.parametrize(
    "inputs", ["float[n, 4] x, float[1, 4] z", "float[n, 4] x, float[m, 4] z", "float[time, batch] x, float[4] z"]
)
def test_a_batch_axis_that_is_not_certain_is_asked_for(inputs, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    write_onnx(tmp_path / "m.onnx", inputs, "float[a, b] y", "y = Add(x, z)")
    with pytest.raises(PyTritonValidationError, match=r"which axis is that of the batch\? Its inputs are x \("):
        load(tmp_path / "m.onnx")
    assert not load(tmp_path / "m.onnx", batch=False, inputs={"x": "float32:4,4"}).contents.batching


def test_outputs_without_the_batchs_rows_are_told(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    write_onnx(tmp_path / "m.onnx", "float[n, 4] x", "float[4, n] y", "y = Transpose <perm=[1, 0]>(x)")
    with pytest.raises(PyTritonValidationError, match=r"has 4 rows for 3 rows .* batch=False"):
        load(tmp_path / "m.onnx")


def test_an_example_that_the_network_cannot_take_is_made_larger(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pool = "y = MaxPool <kernel_shape=[8, 8]>(x)"
    write_onnx(tmp_path / "m.onnx", "float[n, 1, h, w] x", "float[n, 1, p, q] y", pool)
    (warmup,) = load(tmp_path / "m.onnx").derived(ModelConfig()).config.model_warmup
    assert warmup.inputs["x"].shape == (1, 32, 32)


# What other models return


def test_each_output_of_a_model_with_several_has_probabilities_of_its_own(tmp_path):
    multioutput = pytest.importorskip("sklearn.multioutput", reason="scikit-learn is not installed")
    linear = pytest.importorskip("sklearn.linear_model")
    rows, species = iris()
    both = np.column_stack([species == 0, species == 1])
    model = multioutput.MultiOutputClassifier(linear.LogisticRegression(max_iter=500)).fit(rows, both)
    loaded = load(dumped(model, tmp_path), method="predict_proba", trust=True)
    outputs = loaded.predict({"features": rows[::40]})
    for index, expected in enumerate(model.predict_proba(rows[::40])):
        np.testing.assert_array_equal(outputs[f"output_{index}"], expected)


def test_a_transformer_transforms_even_if_it_also_scores(tmp_path):
    decomposition = pytest.importorskip("sklearn.decomposition", reason="scikit-learn is not installed")
    rows, _ = iris()
    model = decomposition.PCA(2).fit(rows)
    loaded = load(dumped(model, tmp_path), trust=True)
    assert loaded.contents.method == "transform"
    np.testing.assert_array_equal(loaded.predict({"features": rows})["result"], model.transform(rows))


def test_a_column_may_be_called_self_and_hold_known_numbers(tmp_path):
    compose = pytest.importorskip("sklearn.compose", reason="scikit-learn is not installed")
    pipeline, preprocessing = pytest.importorskip("sklearn.pipeline"), pytest.importorskip("sklearn.preprocessing")
    linear, pandas = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("pandas")
    given = pandas.DataFrame({"self": [1.0, 2.0, 3.0, 4.0], "zip": [10115, 80331, 10115, 80331]})
    encode = compose.ColumnTransformer([("zip", preprocessing.OneHotEncoder(), ["zip"])], remainder="passthrough")
    model = pipeline.make_pipeline(encode, linear.LinearRegression()).fit(given, [1.0, 2.0, 3.0, 4.0])
    loaded = load(dumped(model, tmp_path), trust=True)
    assert loaded(**{"self": 2.0, "zip": 80331.0}) == pytest.approx(model.predict(given[1:2])[0])


@pytest.mark.parametrize("stopped", [True, False])
def test_xgboost_answers_as_scikit_learns_class_of_it_after_early_stopping(tmp_path, stopped):
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed")
    rows, _ = iris()
    noise = np.random.default_rng(7).integers(0, 2, len(rows))
    options = {"early_stopping_rounds": 2} if stopped else {}
    model = xgboost.XGBClassifier(n_estimators=20, **options)
    model.fit(rows, noise, eval_set=[(rows[::3], noise[::-3][: len(rows[::3])])], verbose=False)
    model.save_model(tmp_path / "model.json")
    outputs = load(tmp_path / "model.json").predict({"features": rows.astype(np.float32)})
    np.testing.assert_allclose(outputs["result"].ravel(), model.predict_proba(rows)[:, 1], rtol=1e-6)


def test_a_linear_booster_of_xgboost_is_served(tmp_path):
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed")
    rows, species = iris()
    model = xgboost.train({"booster": "gblinear"}, xgboost.DMatrix(rows, species), 5)
    model.save_model(tmp_path / "model.json")
    outputs = load(tmp_path / "model.json").predict({"features": rows.astype(np.float32)})
    np.testing.assert_allclose(outputs["result"].ravel(), model.predict(xgboost.DMatrix(rows)), rtol=1e-6)


@pytest.mark.parametrize(
    ("operator", "message"), [("SequenceConstruct", "is a sequence"), ("NonZero", "has 2 rows for")]
)
def test_outputs_of_onnx_without_the_batchs_axis_are_refused(tmp_path, operator, message):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    x = helper.make_tensor_value_info("x", floats, ["N", 4])
    if operator == "NonZero":
        y = helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [None, None])
        nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    else:
        y = helper.make_tensor_sequence_value_info("y", floats, None)
        nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    with pytest.raises(PyTritonValidationError, match=message):
        load(tmp_path / "m.onnx")


# Encoders


def fitted(transformer, table, *, steps=()):
    """A pipeline that begins with a transformer, fitted to a table and to the numbers of its rows."""
    pipeline, linear = pytest.importorskip("sklearn.pipeline"), pytest.importorskip("sklearn.linear_model")
    return pipeline.make_pipeline(transformer, *steps, linear.Ridge()).fit(table, np.arange(len(table), dtype=float))


def test_texts_of_an_encoder_that_takes_all_columns_are_known(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is not installed")
    data = pandas.DataFrame({"city": ["Rome", "Oslo", "Rome"], "size": ["S", "M", "L"]})
    model = fitted(preprocessing.OneHotEncoder(), data)
    saved = load(dumped(model, tmp_path), trust=True)
    assert saved.signature.inputs == {"city": {"type": "string"}, "size": {"type": "string"}}
    assert saved(city="Oslo", size="M") == pytest.approx(model.predict(data)[1])


def test_texts_without_names_of_columns_are_one_array(tmp_path):
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is not installed")
    data = np.array([["Rome", "S"], ["Oslo", "M"], ["Rome", "L"]], object)
    model = fitted(preprocessing.OneHotEncoder(), data)
    saved = load(dumped(model, tmp_path), trust=True)
    assert saved.signature.inputs == {"features": {"type": "array", "dtype": "BYTES", "shape": [2]}}
    assert saved(features=["Oslo", "M"]) == pytest.approx(model.predict(data)[1])


def test_texts_and_numbers_without_names_are_refused_with_what_to_do(tmp_path):
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is not installed")
    model = fitted(preprocessing.OneHotEncoder(), np.array([["Rome", 1], ["Oslo", 2]], object))
    with pytest.raises(PyTritonValidationError, match="without names: fit it with a table of pandas that has them"):
        load(dumped(model, tmp_path), trust=True)


@pytest.mark.parametrize("columns", [[1], slice(1, 2), np.array([False, True]), ["city"]])
def test_columns_that_are_chosen_in_any_way_are_known(columns, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    compose, preprocessing = pytest.importorskip("sklearn.compose"), pytest.importorskip("sklearn.preprocessing")
    data = pandas.DataFrame({"rooms": [1.0, 2.0, 3.0], "city": ["Rome", "Oslo", "Rome"]})
    transformer = compose.ColumnTransformer([("city", preprocessing.OneHotEncoder(), columns)], remainder="passthrough")
    model = fitted(transformer, data)
    saved = load(dumped(model, tmp_path), trust=True)
    assert saved.signature.inputs["city"] == {"type": "string"}
    assert saved(rooms=2.0, city="Oslo") == pytest.approx(model.predict(data)[1])


def test_a_union_of_vectorizers_and_a_search_take_a_text(tmp_path):
    text = pytest.importorskip("sklearn.feature_extraction.text", reason="scikit-learn is not installed")
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline, make_union

    union = make_union(text.TfidfVectorizer(), text.TfidfVectorizer(analyzer="char"))
    search = GridSearchCV(make_pipeline(union, LogisticRegression()), {"logisticregression__C": [1, 2]}, cv=2)
    model = search.fit(["good day", "fine day", "bad day", "sad day"], [1, 1, 0, 0])
    saved = load(dumped(model, tmp_path), trust=True)
    assert saved.signature.inputs == {"text": {"type": "string"}}
    assert saved(text="good one") == model.predict(["good one"])[0]


def test_a_vectorizer_of_one_column_takes_a_text_beside_numbers(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    compose = pytest.importorskip("sklearn.compose", reason="scikit-learn is not installed")
    from sklearn.feature_extraction.text import TfidfVectorizer

    data = pandas.DataFrame({"review": ["good", "bad", "fine"], "stars": [5.0, 1.0, 4.0]})
    model = fitted(compose.ColumnTransformer([("r", TfidfVectorizer(), "review")], remainder="passthrough"), data)
    saved = load(dumped(model, tmp_path), trust=True)
    assert saved.signature.inputs["review"] == {"type": "string"}
    assert saved(review="bad", stars=1) == pytest.approx(model.predict(data)[1])


def test_a_value_that_the_library_refuses_is_told_in_its_words(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is not installed")
    saved = load(
        dumped(fitted(preprocessing.OneHotEncoder(), pandas.DataFrame({"city": ["Rome"]})), tmp_path), trust=True
    )
    with pytest.raises(ValueMismatchError, match=r"Found unknown categories \['Paris'\] in column 0 during transform"):
        saved(city="Paris")


# Missing values


def test_columns_that_a_model_answers_without_may_be_null(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    compose, impute = pytest.importorskip("sklearn.compose"), pytest.importorskip("sklearn.impute")
    data = pandas.DataFrame({"age": [20.0, np.nan, 40.0], "rooms": [1.0, 2.0, 3.0]})
    model = fitted(compose.ColumnTransformer([("age", impute.SimpleImputer(), ["age"])], remainder="passthrough"), data)
    saved = load(dumped(model, tmp_path), trust=True)
    assert saved.signature.inputs == {"age": {"type": "number", "nullable": True}, "rooms": {"type": "number"}}
    assert saved(age=None, rooms=2.0) == pytest.approx(model.predict(data)[1])


def test_booster_without_names_take_null_in_their_array(tmp_path):
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    booster = lightgbm.Booster(model_file=FORMATS["lightgbm"](tmp_path).path)
    saved = load(tmp_path / "leaves.txt")
    assert saved.signature.inputs["features"]["nullable"]
    assert saved(features=[5, None, 1.4, None]) == booster.predict([[5, np.nan, 1.4, np.nan]])[0]
    with pytest.raises(ValueMismatchError, match=r'\["features", 1\]: expected a number, got "x"'):
        saved(features=[5, "x", 1.4, 2])


def test_a_model_that_does_not_accept_missing_values_says_so(tmp_path):
    saved = load(dumped(logistic_regression(), tmp_path), trust=True)
    assert not any("nullable" in schema for schema in saved.signature.inputs.values())


# Labels


def test_labels_name_what_a_booster_numbers(tmp_path):
    xgboost = of_xgboost(tmp_path)
    rows, _ = iris()
    saved = load(xgboost.path, labels=["setosa", "versicolor", "virginica"])
    expected = xgboost.answer(rows[:1])["result"][0].tolist()
    assert saved(**record(rows[0])) == dict(zip(["setosa", "versicolor", "virginica"], expected, strict=True))
    with pytest.raises(PyTritonValidationError, match="no output has numbers of classes, or scores of 2 of them"):
        load(xgboost.path, labels=["a", "b"])


def of_sklearn(folder, model):
    """A trusted file of a model of scikit-learn, and what loads it."""
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    joblib.dump(model, folder / "m.joblib")
    return lambda **options: load(folder / "m.joblib", trust=True, **options)


def test_labels_of_scikit_learn_are_those_of_its_classes_in_their_order(tmp_path):
    tree = pytest.importorskip("sklearn.tree", reason="scikit-learn is not installed")
    rows, species = iris()
    load_it = of_sklearn(tmp_path, tree.DecisionTreeClassifier().fit(rows, species + 1))
    saved, scores = load_it(labels=["a", "b", "c"]), load_it(labels=["a", "b", "c"], method="predict_proba")
    assert [saved(features=rows[number]) for number in (0, 75, 149)] == ["a", "b", "c"]
    assert scores(features=rows[149]) == {"a": 0.0, "b": 0.0, "c": 1.0}
    with pytest.raises(PyTritonValidationError, match="has 3 classes, 1, 2, 3; give a label for each, in this order"):
        load_it(labels=["a", "b"])


def test_labels_of_scikit_learn_for_many_classes_and_for_several_at_once(tmp_path):
    neighbors = pytest.importorskip("sklearn.neighbors", reason="scikit-learn is not installed")
    multiclass = pytest.importorskip("sklearn.multiclass", reason="scikit-learn is not installed")
    tree = pytest.importorskip("sklearn.tree", reason="scikit-learn is not installed")
    rows, names = np.arange(150.0)[:, np.newaxis], [f"n{number}" for number in range(150)]
    many = neighbors.KNeighborsClassifier(1).fit(rows, np.arange(1, 151))
    saved = of_sklearn(tmp_path, many)(labels=names)
    assert [saved(features=rows[number]) for number in (0, 149)] == ["n0", "n149"]
    several = multiclass.OneVsRestClassifier(tree.DecisionTreeClassifier()).fit(rows, np.array([[0, 1], [1, 1]] * 75))
    assert of_sklearn(tmp_path, several)(labels=["a", "b"])(features=rows[0]) == {"a": 0, "b": 1}


def test_labels_that_a_method_has_no_place_for_are_refused(tmp_path):
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    rows, species = iris()
    load_it = of_sklearn(tmp_path, linear.LogisticRegression(max_iter=500).fit(rows, species == 2))
    with pytest.raises(PyTritonValidationError, match="no output has numbers of classes"):
        load_it(labels=["a", "b"], method="decision_function")


def test_labels_for_numbers_that_are_no_classes_are_refused(tmp_path):
    ensemble = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed")
    rows, _ = iris()
    load_it = of_sklearn(tmp_path, ensemble.IsolationForest(n_estimators=2, random_state=0).fit(rows))
    with pytest.raises(PyTritonValidationError, match="has the class -1, for which there is no label"):
        load_it(labels=["outlier", "inlier"])


def test_labels_name_the_classes_of_xgboost_which_gives_them_as_floats(tmp_path):
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
    rows, species = iris()
    for objective, target in {"multi:softmax": species, "binary:hinge": species == 2}.items():
        options = {"objective": objective, "nthread": 1} | ({"num_class": 3} if objective.startswith("multi") else {})
        booster = xgboost.train(options, xgboost.DMatrix(rows, label=target), num_boost_round=3)
        booster.save_model(tmp_path / "m.ubj")
        labels = ["a", "b", "c"][: len({*target.tolist()})]
        saved = load(tmp_path / "m.ubj", labels=labels)
        assert [saved(features=rows[number].tolist()) for number in (0, 149)] == [labels[0], labels[-1]]


def test_labels_have_to_differ(tmp_path):
    with pytest.raises(PyTritonValidationError, match="the labels a, a, b have to be different"):
        load(of_xgboost(tmp_path).path, labels=["a", "a", "b"])


@pytest.mark.parametrize("wrong", [0, 2, 4])
def test_the_row_that_a_model_refuses_is_told(tmp_path, wrong):
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"city": ["Oslo", "Rome"], "size": [1.0, 2.0]})
    saved = of_sklearn(tmp_path, preprocessing.OrdinalEncoder().fit(frame))()
    cities = np.array([[b"Rome"]] * 5, object)
    cities[wrong] = b"Bern"
    with pytest.raises(ValueMismatchError, match="Bern") as caught:
        saved.predict({"city": cities, "size": np.ones((5, 1))})
    assert [problem.path for problem in caught.value.problems] == [(wrong,)]
    with pytest.raises(ValueMismatchError) as caught:
        saved(city="Bern", size=1.0)
    assert [problem.path for problem in caught.value.problems] == [()]


def test_a_column_of_booleans_that_an_encoder_knows_takes_booleans(tmp_path):
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"new": [True, False], "city": ["Oslo", "Rome"]})
    saved = of_sklearn(tmp_path, preprocessing.OrdinalEncoder().fit(frame))()
    assert saved.most_rows == 4096  # as tables have, whatever their columns are
    assert saved(new=True, city="Rome").tolist() == [1.0, 1.0]
    assert saved(new=False, city="Oslo").tolist() == [0.0, 0.0]


def test_many_columns_of_texts_and_numbers_are_refused_with_the_reason(tmp_path):
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({f"c{number}": [1.0, 2.0] for number in range(110)} | {"city": ["Oslo", "Rome"]})
    with pytest.raises(PyTritonValidationError, match=r"in one array, as they are over 100\. Or serve it in Python"):
        of_sklearn(tmp_path, preprocessing.OrdinalEncoder().fit(frame))()


def test_a_table_of_many_columns_is_one_array_with_the_names_of_the_columns(tmp_path):
    compose = pytest.importorskip("sklearn.compose", reason="scikit-learn is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(np.arange(360.0).reshape(3, 120), columns=[f"c{number}" for number in range(120)])
    load_it = of_sklearn(tmp_path, compose.ColumnTransformer([("some", "passthrough", ["c7", "c3"])]).fit(frame))
    assert load_it()(features=frame.to_numpy()[1]).tolist() == [127.0, 123.0]


def test_a_column_may_be_called_features(tmp_path):
    compose = pytest.importorskip("sklearn.compose", reason="scikit-learn is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"features": [1.0, 2.0], "other": [3.0, 4.0]})
    saved = of_sklearn(
        tmp_path, compose.ColumnTransformer([("all", "passthrough", ["other", "features"])]).fit(frame)
    )()
    assert saved(other=4.0, features=2.0).tolist() == [4.0, 2.0]
    for wrong in ({"features": 2.0}, {"features": 2.0, "other": 1.0, "more": 1.0}):
        with pytest.raises(ValueError, match="m takes features, other, but got features"):
            saved(**wrong)


@pytest.mark.parametrize(
    ("name", "dtype", "values", "expected"),
    [
        (None, float, np.array([[0.0], [1.0]]), [0.0, 2.0]),
        ("features", str, np.array([[b"a"], [b"b"]], object), [b"aa", b"bb"]),
    ],
)
def test_tensors_of_mlflow_have_the_rank_and_form_of_their_signature(tmp_path, name, dtype, values, expected):
    pyfunc = pytest.importorskip("mlflow.pyfunc", reason="mlflow is not installed")
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Schema, TensorSpec

    class Twice(pyfunc.PythonModel):
        def predict(self, context, model_input, params=None):
            given = model_input if name is None else model_input[name]
            return np.array([2 * each for each in given.tolist()])

    signature = ModelSignature(Schema([TensorSpec(np.dtype(dtype), (-1,), name)]))
    pyfunc.save_model(tmp_path / "model", python_model=Twice(), signature=signature, pip_requirements=[])
    outputs = load(tmp_path / "model", trust=True).predict({"features": values})
    assert [*outputs["result"].ravel()] == expected


def test_a_value_that_onnxruntime_refuses_is_a_mistake_of_the_request(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    table = onnx.numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    write_onnx(tmp_path / "m.onnx", "int64[n] x", "float[n] y", "y = Gather(w, x)", [table])
    saved = load(tmp_path / "m.onnx")
    assert saved(x=2) == {"y": 2.0}
    with pytest.raises(ValueMismatchError, match="out of data bounds"):
        saved(x=3)


@pytest.mark.parametrize("axes", ["1099511627776", "1099511627776, 1099511627776", "100000, 100000"])
def test_an_example_that_takes_too_much_memory_is_not_made(tmp_path, axes):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    write_onnx(tmp_path / "m.onnx", f"float[n, {axes}] x", "float[n, 7, 7] y", "y = Reshape(x, s)\ns = Shape(x)")
    with pytest.raises(PyTritonValidationError, match=r"an example made from its types \(it takes over 1024 MiB"):
        load(tmp_path / "m.onnx")


def test_labels_name_both_classes_of_one_probability(tmp_path):
    lightgbm = FORMATS["lightgbm"](tmp_path)
    rows, _ = iris()
    (other,) = lightgbm.answer(rows[:1])["result"]
    saved = load(lightgbm.path, labels=["others", "virginica"])
    assert saved(features=rows[0]) == {"others": 1 - other, "virginica": other}


def test_labels_name_numbers_of_classes_and_scores_of_several_outputs(tmp_path):
    onnx = FORMATS["onnx"](tmp_path)
    rows, _ = iris()
    found = load(onnx.path, labels=["a", "b", "c"])(x=rows[0].tolist())
    expected = {name: values[0].tolist() for name, values in onnx.answer(rows[:1]).items()}
    assert found == {"scores": dict(zip("abc", expected["scores"], strict=True)), "best": "abc"[expected["best"]]}


def test_an_input_of_unknown_rank_is_asked_for(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(name, floats, None) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    with pytest.raises(
        PyTritonValidationError, match=r"which dtype and shape its input 'x' has; .*--input x:dtype:shape"
    ):
        load(tmp_path / "m.onnx")
    model = load(tmp_path / "m.onnx", inputs={"x": "float32:2,2"})
    assert model.contents.batching
    assert model(x=[[1, 2], [3, 4]])["y"].tolist() == [[2, 4], [6, 8]]
    assert load(tmp_path / "m.onnx", inputs={"x": "float32:3"}, batch=False)(x=[1, 2, 3])["y"].tolist() == [2, 4, 6]
