"""When a process that has died is started again."""

from pytriton.restarts import HEALTHY_S, MAX_BACKOFF_S, RestartPolicy


def test_restarts_wait_longer_with_each_death_up_to_a_limit_and_never_end():
    policy = RestartPolicy()
    backoffs = [policy.record_exit(now=0.0) for _ in range(2000)]
    assert backoffs[:5] == [0.0, 0.1, 0.2, 0.4, 0.8]
    assert backoffs == sorted(backoffs)
    assert backoffs[-1] == MAX_BACKOFF_S


def test_attempts_that_fail_slowly_do_not_shorten_the_wait():
    policy = RestartPolicy()
    assert [policy.record_exit(now) for now in (0.0, 200.0, 400.0)] == [0.0, 0.1, 0.2]


def test_a_process_that_was_ready_for_a_minute_begins_a_new_row():
    policy = RestartPolicy()
    for now in (0.0, 1.0, 2.0):
        policy.record_exit(now)
    policy.record_ready(3.0)
    assert policy.record_exit(3.0 + HEALTHY_S - 1) == 0.4
    policy.record_ready(100.0)
    assert policy.record_exit(100.0 + HEALTHY_S) == 0.0
    assert policy.row == 1


def test_with_a_limit_a_process_that_dies_too_often_in_a_minute_is_not_restarted():
    policy = RestartPolicy(max_restarts=2)
    assert [policy.record_exit(now) for now in (0.0, 36.0, 72.0)] == [0.0, 0.1, 0.2]
    assert policy.exits == 2
    assert policy.record_exit(now=78.0) is None
    assert RestartPolicy(max_restarts=0).record_exit(now=0.0) is None
