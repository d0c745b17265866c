"""Whether memory is short, by what the kernel says of machine and control groups."""

import pytest

from pytriton.python_proxy.memory import Memory

GIB = 1 << 30


@pytest.fixture
def kernel(tmp_path):
    """A kernel's files, of a machine and of the control groups ``/`` and ``/pod/container``, with plenty of memory."""
    kernel = Kernel(tmp_path)
    kernel.machine(available=20 * GIB)
    return kernel


class Kernel:
    def __init__(self, folder):
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "cgroup").write_text("3:cpu:/elsewhere\n0::/pod/container\n")

    def machine(self, available):
        text = f"MemTotal: {32 * GIB >> 10} kB\nMemFree: 1 kB\nMemAvailable: {available >> 10} kB\nHugePages_Total: 0\n"
        (self.proc / "meminfo").write_text(text)

    def group(self, path, limit, used, files=0):
        folder = self.cgroups / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {files}\n")

    def is_short(self):
        return Memory(str(self.proc), str(self.cgroups)).is_short()


def test_memory_is_short_when_the_machine_has_less_than_its_reserve(kernel):
    assert not kernel.is_short()
    kernel.machine(available=513 << 20)
    assert not kernel.is_short()
    kernel.machine(available=511 << 20)
    assert kernel.is_short()


@pytest.mark.parametrize("group", ["pod/container", "pod", "."])
def test_memory_is_short_when_a_control_group_has_less_than_its_reserve(kernel, group):
    kernel.group(group, GIB, GIB - (60 << 20))
    assert not kernel.is_short()
    kernel.group(group, GIB, GIB - (40 << 20))
    assert kernel.is_short()


def test_what_is_available_is_the_least_of_machine_and_control_groups(kernel):
    def available():
        return Memory(str(kernel.proc), str(kernel.cgroups)).available_bytes()

    assert available() == 20 * GIB
    kernel.group("pod", 4 * GIB, 3 * GIB, files=GIB)
    assert available() == 2 * GIB
    kernel.group("pod/container", GIB, 2 * GIB)
    assert available() == 0
    (kernel.proc / "meminfo").unlink()
    assert Memory(str(kernel.proc), "/missing").available_bytes() == 0


@pytest.mark.parametrize("group", ["pod/container", "."])
def test_control_groups_of_version_1_count_too(kernel, group):
    (kernel.proc / "self" / "cgroup").write_text("4:cpu,memory:/pod/container\n0::/\n")
    folder = kernel.cgroups / "memory" / group
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(f"{GIB}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{GIB}\n")
    (folder / "memory.stat").write_text(f"total_inactive_file {60 << 20}\n")
    assert not kernel.is_short()
    (folder / "memory.stat").write_text(f"total_inactive_file {40 << 20}\n")
    assert kernel.is_short()


def test_the_control_groups_of_others_do_not_matter(kernel):
    kernel.group("elsewhere", GIB, GIB)
    kernel.group("pod/other", GIB, GIB)
    assert not kernel.is_short()


def test_files_that_the_kernel_may_drop_count_as_available(kernel):
    kernel.group("pod", GIB, GIB, files=GIB // 2)
    assert not kernel.is_short()


def test_a_group_without_limit_and_a_kernel_that_says_nothing_do_not_make_memory_short(kernel):
    kernel.group("pod", "max", GIB)
    assert not kernel.is_short()
    (kernel.proc / "meminfo").unlink()
    (kernel.proc / "self" / "cgroup").unlink()
    assert not kernel.is_short()


def test_the_real_kernel_is_understood():
    known = Memory()
    known.is_short()
    amounts = list(known._amounts())
    assert amounts
    assert all(0 < available <= total for available, total in amounts)


def test_after_a_shortage_was_accepted_half_of_the_reserve_will_do_until_all_of_it_is_there_again(kernel):
    known = Memory(str(kernel.proc), str(kernel.cgroups))
    kernel.machine(available=400 << 20)
    assert known.is_short()
    known.accept()
    assert not known.is_short()
    kernel.machine(available=257 << 20)
    assert not known.is_short()
    kernel.machine(available=255 << 20)
    known.accept()
    assert known.is_short()
    kernel.machine(available=GIB)
    assert not known.is_short()
    kernel.machine(available=400 << 20)
    assert known.is_short()
