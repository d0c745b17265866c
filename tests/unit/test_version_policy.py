import pytest

from pytriton.model_config import AllVersions, LatestVersions, SpecificVersions


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        (AllVersions(), {1, 2, 10}),
        (LatestVersions(), {10}),
        (LatestVersions(2), {2, 10}),
        (LatestVersions(9), {1, 2, 10}),
        (SpecificVersions([10, 1, 7]), {1, 10}),
    ],
)
def test_a_policy_chooses_among_the_versions_that_there_are(policy, served):
    assert policy.served([10, 1, 2]) == served
