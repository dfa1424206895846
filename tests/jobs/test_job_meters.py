"""What a worker counts, as Prometheus reads it."""

from prometheus_client.parser import text_string_to_metric_families

from skep.jobs.worker.meters import BOUNDS_S, JobMeters
from tests.jobs.support.shop import break_down, price


def families(meters):
    return {family.name: family for family in text_string_to_metric_families(meters.text())}


def test_the_text_can_be_read_back():
    meters = JobMeters(5)
    meters.claimed('a "type"\\\n', 0.02)
    meters.ended('a "type"\\\n', "completed", 0.3)
    meters.ended('a "type"\\\n', "failed", 1000)
    meters.running = 1

    read = families(meters)

    samples = read["skep_job_attempts"].samples
    (failed,) = [sample for sample in samples if sample.labels["outcome"] == "failed"]
    assert (failed.labels["type"], failed.value) == ('a "type"\\\n', 1)
    durations = {
        sample.labels["le"]: sample.value
        for sample in read["skep_job_attempt_duration_seconds"].samples
        if "le" in sample.labels
    }
    assert durations["0.25"] == 0
    assert durations["0.5"] == durations[str(BOUNDS_S[-1])] == 1
    assert durations["+Inf"] == 2
    assert read["skep_jobs_running"].samples[0].value == 1


async def test_a_worker_counts_how_attempts_end(client, start_worker):
    worker = await start_worker()
    await (await client.start(price, 1)).result(timeout=20)
    failing = await client.start(break_down, "oh")
    await client.awaiting.outcome(failing.id)
    await worker.stop(grace_s=5)

    samples = families(worker.meters)["skep_job_attempts"].samples

    ended = {(each.labels["type"], each.labels["outcome"]): each.value for each in samples}
    assert ended == {("price", "completed"): 1, ("break", "retry"): 2, ("break", "failed"): 1}
    assert worker.meters.running == 0
