from datetime import datetime, timezone

from pytriton.server.statistics import Duration, parse_statistics

HTTP = {
    "model_stats": [
        {
            "name": "b",
            "version": "10",
            "last_inference": 1763752477438,
            "inference_count": 7,
            "execution_count": 3,
            "inference_stats": {
                "success": {"count": 4, "ns": 2_000_000_000},
                "queue": {"count": 4, "ns": 1_000_000},
                "cache_hit": {"count": 1, "ns": 10},
            },
            "batch_stats": [{"batch_size": 3, "compute_infer": {"count": 2, "ns": 4_000_000}}],
        },
        {"name": "b", "version": "9", "last_inference": 0},
        {"name": "a", "version": "1"},
    ]
}
GRPC = {
    "model_stats": [
        {
            "name": "b",
            "version": "10",
            "last_inference": "1763752477438",
            "inference_count": "7",
            "inference_stats": {"success": {"count": "4", "ns": "2000000000"}, "fail": {}},
            "batch_stats": [{"batch_size": "3", "compute_infer": {"count": "2", "ns": "4000000"}}],
        }
    ]
}


def test_models_come_in_the_order_of_their_names_and_versions():
    assert [(found.name, found.version) for found in parse_statistics(HTTP)] == [("a", 1), ("b", 9), ("b", 10)]


def test_numbers_are_counts_seconds_and_times():
    found = parse_statistics(HTTP)[-1]
    assert (found.inference_count, found.execution_count) == (7, 3)
    assert found.last_inference == datetime(2025, 11, 21, 19, 14, 37, 438000, timezone.utc)
    assert found.success == Duration(4, 2.0)
    assert found.success.mean_s == 0.5
    assert found.cache_hit.count == 1
    assert found.batches.keys() == {3}
    assert found.batches[3].compute_infer == Duration(2, 0.004)


def test_what_the_server_leaves_out_is_zero():
    found = parse_statistics(HTTP)[0]
    assert (found.inference_count, found.last_inference, found.success) == (0, None, Duration())
    assert found.success.mean_s == 0
    assert found.batches == {}


def test_numbers_may_be_text_as_protobuf_writes_them():
    (found,) = parse_statistics(GRPC)
    (http,) = [each for each in parse_statistics(HTTP) if each.version == 10]
    assert (found.success, found.last_inference, found.batches) == (http.success, http.last_inference, http.batches)


def test_no_models_are_no_statistics():
    assert parse_statistics({}) == []
