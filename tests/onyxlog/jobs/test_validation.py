"""Jobs that cannot run are refused with where and what: each rule with a job that breaks it and no other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from onyxlog.errors import WorkflowError
from onyxlog.jobs import workflow
from onyxlog.jobs.aggregates import Aggregation
from onyxlog.jobs.flow_conditions import Action, FlowCondition
from onyxlog.jobs.grouping import BUCKETS, GroupBy
from onyxlog.jobs.lifecycles import Lifecycle
from onyxlog.jobs.predicates import Predicate
from onyxlog.jobs.specification import Delivery, Job, Plugin, Task, TaskKind
from onyxlog.jobs.triggers import Complete, Punctuation, Segments, Timer, Trigger, TriggerType, Watermark
from onyxlog.jobs.validation import check, problems
from onyxlog.jobs.windows import Fixed, Global, Session, Sliding, Window
from onyxlog.scheduling.requirements import FluxPolicy, TaskScheduler
from tests.onyxlog.jobs.samples import HERE, with_everything, word_count

ALWAYS = Predicate(f"{HERE}:always")


def task(number: int, **changes: Any) -> Job:
    """The word count with one of its tasks (lines, split, count, store) changed."""
    job = word_count()
    catalog = list(job.catalog)
    catalog[number] = evolve(catalog[number], **changes)
    return evolve(job, catalog=tuple(catalog))


def window(**changes: Any) -> Job:
    return word_count(windows=(evolve(word_count().windows[0], **changes),))


def trigger(on: TriggerType | None = None, **changes: Any) -> Job:
    given = evolve(word_count().triggers[0], **changes)
    return word_count(triggers=(evolve(given, on=on) if on else given,))


def condition(*of: Any, delivery: Delivery = Delivery.AT_LEAST_ONCE, **more: Any) -> Job:
    return word_count(flow_conditions=(FlowCondition(*of, **more),), delivery=delivery)


def edges(*of: tuple[str, str]) -> Job:
    return word_count(workflow=of)


def test_good_jobs_are_accepted() -> None:
    check(word_count())
    check(with_everything())


CHAIN = (("lines", "split"), ("split", "count"), ("count", "store"))
WRONG: list[tuple[Job, str]] = [
    # the job
    (word_count(id=""), "id: expected a name, found ''"),
    (word_count(id="a/b"), "id: expected a name without '/'"),
    (word_count(id=".."), "id: expected a name, found '..'"),
    (word_count(percentage=101), "percentage: expected 1 to 100, found 101"),
    (word_count(percentage=0), "percentage: expected 1 to 100, found 0"),
    (word_count(pending_max=0), "pending_max: expected at least 1, found 0"),
    (word_count(checkpoint_interval_ms=0), "checkpoint_interval_ms: expected at least 1, found 0"),
    (
        word_count(resume_from="words", delivery=Delivery.EXACTLY_ONCE_STATE),
        "resume_from: a job cannot begin from itself",
    ),
    (word_count(resume_from="other"), "resume_from: only jobs with delivery 'exactly-once-state' have checkpoints"),
    # tasks
    (task(1, name="a\nb"), "catalog[1] ('a\\nb'): name: expected a name without '/' and control characters"),
    (task(1, name=":all"), "catalog[1] (':all'): name: "),
    (task(0, plugin=None), "catalog[0] ('lines'): plugin: an input needs one"),
    (task(3, plugin=None), "catalog[3] ('store'): plugin: an output needs one"),
    (task(1, plugin=Plugin("null")), "catalog[1] ('split'): plugin: only inputs and outputs have one, this is a function"),
    (task(0, bulk=True), "catalog[0] ('lines'): bulk: is for the task's function, and there is none"),
    (task(0, params={"a": 1}), "catalog[0] ('lines'): params: is for the task's function, and there is none"),
    (task(1, resources=("db",)), "catalog[1] ('split'): resources: are made by lifecycles, and this task has none"),
    (
        evolve(task(1, resources=("db", "separator")), lifecycles=(Lifecycle(":all", f"{HERE}:FIRST"),)),
        "catalog[1] ('split'): resources: 'separator' is in params too",
    ),
    (task(1, batch_size=0), "catalog[1] ('split'): batch_size: expected at least 1, found 0"),
    (task(1, batch_timeout_ms=-1), "catalog[1] ('split'): batch_timeout_ms: expected at least 0, found -1"),
    (task(1, min_peers=0), "catalog[1] ('split'): min_peers: expected at least 1, found 0"),
    (task(1, min_peers=3, max_peers=2), "catalog[1] ('split'): max_peers: expected at least min_peers, 3, found 2"),
    (task(1, percentage=50), "catalog[1] ('split'): percentage: the job's task_scheduler is 'balanced', which does not"),
    (task(1, tags=("",)), "catalog[1] ('split'): tags: a tag is not empty"),
    (task(1, flux=FluxPolicy.KILL), "catalog[1] ('split'): flux: is for tasks with group_by"),
    (task(0, group_by=GroupBy(("a",))), "catalog[0] ('lines'): group_by: nothing is sent to an input"),
    (task(2, group_by=GroupBy()), "catalog[2] ('count'): group_by: expected one of keys and function"),
    (task(2, group_by=GroupBy(("a",), "b:c")), "catalog[2] ('count'): group_by: expected one of keys and function"),
    (
        task(2, max_peers=BUCKETS + 1),
        "catalog[2] ('count'): max_peers: a task with group_by has at most 4096 workers, found 4097",
    ),
    (
        word_count(catalog=(*word_count().catalog, word_count().catalog[1])),
        "catalog[4]: 'split' is there already",
    ),
    # the workflow
    (edges(*CHAIN, ("split", "stoer")), "workflow[3]: no task 'stoer' in the catalog (did you mean 'store'?)"),
    (edges(*CHAIN, CHAIN[0]), "workflow[3]: 'lines' to 'split' is there already"),
    (
        edges(*CHAIN[:2], ("count", "split"), ("count", "store")),
        "workflow: a cycle: 'split' -> 'count' -> 'split'; segments would never come to an end",
    ),
    (edges(*CHAIN, ("split", "split")), "workflow: a cycle: 'split' -> 'split'"),
    (edges(*CHAIN, ("store", "lines")), "workflow: a cycle: "),
    (
        edges(("lines", "count"), ("count", "store")),
        "catalog[1] ('split'): no edge of the workflow leads to it or from it",
    ),
    (
        word_count(catalog=(*word_count().catalog, Task("again", TaskKind.INPUT, plugin=Plugin("null"))),
                   workflow=(*CHAIN, ("split", "again"), ("again", "store"))),
        "catalog[4] ('again'): nothing can be sent to an input, the workflow has 'split' send to it",
    ),
    (
        word_count(catalog=(*word_count().catalog, Task("more")), workflow=(*CHAIN, ("more", "count"))),
        "catalog[4] ('more'): no edge leads to it, and it is no input but a function task: nothing would reach it",
    ),
    (
        word_count(catalog=(*word_count().catalog, Task("more")), workflow=(*CHAIN, ("split", "more"))),
        "catalog[4] ('more'): what it makes goes nowhere: the last task is an output or a reduce",
    ),
    (
        word_count(
            catalog=(*word_count().catalog, Task("early", TaskKind.OUTPUT, plugin=Plugin("null"))),
            workflow=(*CHAIN, ("split", "early"), ("early", "count")),
        ),
        "catalog[4] ('early'): nothing comes after an output, the workflow has it send to 'count'",
    ),
    # flow conditions
    (condition("spilt", ("count",), ALWAYS), "flow_conditions[0]: source: no task 'spilt' (did you mean 'split'?)"),
    (condition("store", (":all",), ALWAYS), "flow_conditions[0]: source: nothing comes after 'store'"),
    (condition("split", (), ALWAYS), "flow_conditions[0]: to: expected names of tasks, ':all' or ':none', found none"),
    (condition("split", ("store",), ALWAYS), "flow_conditions[0]: to: no edge of the workflow from 'split' to 'store'"),
    (condition("split", ("cuont",), ALWAYS), "(did you mean 'count'?); there are to 'count'"),
    (condition("split", (":all", "count"), ALWAYS), "flow_conditions[0]: to: ':all' and ':none' stand alone"),
    (condition("split", (":none",), ALWAYS), "flow_conditions[0]: to: ':none' means something only where it decides"),
    (condition("split", ("count",), Predicate()), "flow_conditions[0]: predicate: expected one of function, all_of"),
    (
        condition("split", ("count",), Predicate("a:b", any_of=(ALWAYS,))),
        "flow_conditions[0]: predicate: expected one of function, all_of, any_of, none_of, found function, any_of",
    ),
    (
        condition("split", ("count",), Predicate(any_of=(ALWAYS,), params={"a": 1})),
        "flow_conditions[0]: predicate: params belong to a function",
    ),
    (
        condition("split", ("count",), Predicate(any_of=(ALWAYS, Predicate(none_of=(Predicate(),))))),
        "flow_conditions[0]: predicate: expected one of function, all_of, any_of, none_of, found none",
    ),
    (condition("split", ("count",), ALWAYS, on_exception=True), "flow_conditions[0]: on_exception: such a condition"),
    (condition("split", ("count",), ALWAYS, transform=f"{HERE}:described"), "flow_conditions[0]: transform: is for"),
    (
        condition("split", ("count",), ALWAYS, short_circuit=True, action=Action.RETRY),
        'flow_conditions[0]: action: retry sends nothing on and decides alone: expected to = [":none"]',
    ),
    (
        condition(
            *("split", (":none",), ALWAYS),
            short_circuit=True,
            action=Action.RETRY,
            delivery=Delivery.EXACTLY_ONCE_STATE,
        ),
        "flow_conditions[0]: action: retry needs delivery 'at-least-once', this job has 'exactly-once-state'",
    ),
    (
        word_count(
            flow_conditions=(
                FlowCondition("split", ("count",), ALWAYS),
                FlowCondition("split", (":none",), ALWAYS, short_circuit=True),
            )
        ),
        "flow_conditions[1]: short_circuit: those that decide alone come before all others of 'split'",
    ),
    (
        word_count(
            flow_conditions=(
                FlowCondition(":all", (":all",), ALWAYS),
                FlowCondition("split", (":none",), ALWAYS, short_circuit=True),
            )
        ),
        "flow_conditions[1]: short_circuit: ",
    ),
    (condition(":all", ("store",), ALWAYS), "flow_conditions[0]: to: no edge of the workflow from 'lines' to 'store'"),
    # lifecycles
    (word_count(lifecycles=(Lifecycle("al", f"{HERE}:FIRST"),)), "lifecycles[0]: task: no task 'al'; there are count,"),
    # windows
    (window(task="cout"), "windows[0] ('all'): task: no task 'cout' (did you mean 'count'?)"),
    (
        word_count(
            windows=(*word_count().windows, Window("w", "lines", Global(), Aggregation("count"))),
            triggers=(*word_count().triggers, Trigger("t", "w", Complete(), emit="result")),
        ),
        "windows[1] ('w'): task: windows are for function and reduce tasks, 'lines' is an input",
    ),
    (window(extents_max=0), "windows[0] ('all'): extents_max: expected at least 1, found 0"),
    (window(over=Fixed(0), time_key="at"), "windows[0] ('all'): over: range: expected at least 1, found 0"),
    (window(over=Sliding(10, 0), time_key="at"), "windows[0] ('all'): over: slide: expected 1 to the range, 10, found 0"),
    (window(over=Sliding(10, 11), time_key="at"), "over: slide: expected 1 to the range, 10, found 11"),
    (window(over=Sliding(10_000, 1), time_key="at"), "each segment would be in 10000 extents, at most 1000"),
    (window(over=Session(0), time_key="at"), "windows[0] ('all'): over: gap: expected at least 1, found 0"),
    (window(over=Session(5)), "windows[0] ('all'): time_key: a session window needs it"),
    (window(aggregation=Aggregation("cuont")), "windows[0] ('all'): aggregation: no aggregate 'cuont' (did you mean"),
    (window(aggregation=Aggregation("sum")), "windows[0] ('all'): aggregation: sum needs `key`"),
    (window(aggregation=Aggregation("count", "a")), "aggregation: count takes no key, found 'a'"),
    (
        window(aggregation=Aggregation("by-key", "a", Aggregation("max"))),
        "windows[0] ('all'): aggregation: of: max needs `key`",
    ),
    (window(aggregation=Aggregation("sum", "a", Aggregation("count"))), "aggregation: `of` is for by-key only"),
    (window(aggregation=Aggregation("count", params={"a": 1})), "aggregation: `params` are for classes"),
    (
        word_count(windows=(*word_count().windows, Window("w", "count", Global(), Aggregation("count")))),
        "windows[1] ('w'): no trigger tells what it holds",
    ),
    (word_count(windows=word_count().windows * 2), "windows[1]: 'all' is there already"),
    (word_count(windows=(), triggers=()), "catalog[2] ('count'): kind: a reduce task sends what triggers"),
    # triggers
    (
        word_count(triggers=(*word_count().triggers, Trigger("t", "al", Complete(), emit="result"))),
        "triggers[1] ('t'): window: no window 'al' (did you mean 'all'?); there are all",
    ),
    (trigger(Segments(0)), "triggers[0] ('told'): on: count: expected at least 1, found 0"),
    (trigger(Timer(0)), "triggers[0] ('told'): on: period_ms: expected at least 1, found 0"),
    (trigger(Punctuation(Predicate())), "triggers[0] ('told'): on: predicate: expected one of function"),
    (trigger(Watermark()), "triggers[0] ('told'): on: a global window never ends"),
    (trigger(Complete(), on_complete=False), "triggers[0] ('told'): on_complete: false, but"),
    (trigger(emit=None), "triggers[0] ('told'): expected emit or sync"),
    (trigger(emit="reslut"), "triggers[0] ('told'): emit: expected 'result' or package.module:function, found 'reslut'"),
    (trigger(params={"a": 1}), "triggers[0] ('told'): params: are for functions of emit and sync"),
    (word_count(triggers=word_count().triggers * 2), "triggers[1]: 'told' is there already"),
    (
        word_count(
            workflow=CHAIN[:2], catalog=word_count().catalog[:3], triggers=word_count().triggers
        ),
        "triggers[0] ('told'): emit: nothing comes after 'count'; use sync",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("job", "message"), WRONG, ids=[message[:60] for _, message in WRONG])
def test_a_job_with_one_fault_has_one_problem_which_says_where_and_what(job: Job, message: str) -> None:
    found = list(problems(job))
    assert any(message in problem for problem in found), found
    assert all(problem.startswith(f"job {job.id!r}: ") for problem in found)
    with pytest.raises(WorkflowError) as caught:
        check(job)
    assert str(caught.value) == "\n".join(found)


def test_most_faults_are_told_once_only() -> None:
    """A slip that leads to others must not bury itself under them."""
    counts = [len(list(problems(job))) for job, _ in WRONG]
    assert counts.count(1) > 0.8 * len(counts), [w[1] for w, c in zip(WRONG, counts, strict=True) if c > 1]


def test_a_watermark_has_a_percentage_and_a_delay_that_make_sense() -> None:
    over = word_count(windows=(Window("all", "count", Fixed(5), Aggregation("count"), "at"),))
    for on, message in (
        (Watermark(percent=0), "on: percent: expected 1 to 100, found 0"),
        (Watermark(percent=101), "on: percent: expected 1 to 100, found 101"),
        (Watermark(delay_ms=-1), "on: delay_ms: expected at least 0, found -1"),
    ):
        job = evolve(over, triggers=(evolve(over.triggers[0], on=on),))
        assert [problem.rpartition("'): ")[2] for problem in problems(job)] == [message]


def test_with_the_percentage_scheduler_each_task_needs_a_percentage() -> None:
    job = word_count(task_scheduler=TaskScheduler.PERCENTAGE)
    assert len(list(problems(job))) == 4
    check(evolve(job, catalog=tuple(evolve(each, percentage=25) for each in job.catalog)))


def test_all_problems_are_told_at_once() -> None:
    job = task(1, batch_size=0, min_peers=0)
    with pytest.raises(WorkflowError) as caught:
        check(job)
    assert len(str(caught.value).splitlines()) == 2


def test_a_condition_of_all_tasks_may_send_their_errors_to_one_output() -> None:
    job = word_count(
        catalog=(*word_count().catalog, Task("errors", TaskKind.OUTPUT, plugin=Plugin("null"))),
        workflow=(*CHAIN, ("lines", "errors"), ("split", "errors"), ("count", "errors")),
        flow_conditions=(FlowCondition(":all", ("errors",), ALWAYS, short_circuit=True, on_exception=True),),
    )
    check(job)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            task(1, function="splitt"),
            "catalog[1] ('split'): function: expected 'package.module:function', found 'splitt'",
        ),
        (
            task(1, function="no_such_module_here:f"),
            "catalog[1] ('split'): function: 'no_such_module_here:f': module 'no_such_module_here' cannot be imported",
        ),
        (task(1, function=f"{HERE}:splt"), f"{HERE} has no 'splt' (did you mean 'split'?)"),
        (task(1, function=f"{HERE}:CONSTANT"), f"'{HERE}:CONSTANT' is a int, where a function is expected"),
        (task(2, group_by=GroupBy(function=f"{HERE}:prity")), "group_by: "),
        (task(0, plugin=Plugin(f"{HERE}:Nothing")), "catalog[0] ('lines'): plugin: "),
        (
            condition("split", ("count",), Predicate(none_of=(Predicate("x:y"),))),
            "flow_conditions[0]: predicate: 'x:y'",
        ),
        (
            condition(
                "split", ("count",), ALWAYS, on_exception=True, short_circuit=True, transform=f"{HERE}:x"
            ),
            "flow_conditions[0]: transform: ",
        ),
        (word_count(lifecycles=(Lifecycle(":all", f"{HERE}:Misspelt"),)), "(did you mean 'before_bacth'?)"),
        (
            word_count(lifecycles=(Lifecycle(":all", "nothing"),)),
            "lifecycles[0]: calls: expected 'package.module:object'",
        ),
        (
            window(aggregation=Aggregation(f"{HERE}:NoAggregate")),
            "lacks the methods add, merge, result of an aggregate",
        ),
        (
            window(aggregation=Aggregation(f"{HERE}:Longest", params={"lest": 1})),
            "windows[0] ('all'): aggregation: TypeError: ",
        ),
        (trigger(emit=f"{HERE}:nothing"), "triggers[0] ('told'): emit: "),
        (trigger(sync=f"{HERE}:nothing"), "triggers[0] ('told'): sync: "),
        (trigger(Punctuation(Predicate(f"{HERE}:no"))), "triggers[0] ('told'): on: predicate: "),
    ],
)
def test_functions_that_cannot_be_found_are_told_if_they_are_to_be_imported(job: Job, message: str) -> None:
    check(job, importing=False)
    with pytest.raises(WorkflowError) as caught:
        check(job)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("job 'words': ")
    assert message in line


def test_plugins_that_peers_do_not_know_are_told_with_the_nearest_one() -> None:
    known: dict[str, Any] = {"inputs": ("sequence", "file"), "outputs": ("dictionary", "null")}
    check(word_count(), **known)
    with pytest.raises(
        WorkflowError, match=r"catalog\[0\] \('lines'\): plugin: no input 'seqence' \(did you mean"
    ):
        check(task(0, plugin=Plugin("seqence")), **known)
    with pytest.raises(
        WorkflowError, match=r"no output 'sequence'; there are dictionary, null, or package.module"
    ):
        check(task(3, plugin=Plugin("sequence")), **known)


def test_functions_that_are_not_there_are_told_beside_everything_else_and_once() -> None:
    job = word_count(
        percentage=0,
        windows=(Window("w", "count", Global(), Aggregation("cuont")),),
        triggers=(Trigger("t", "w", Complete(), emit="reslt", sync="no_such_module_here:f"),),
    )
    with pytest.raises(WorkflowError) as found:
        check(job)
    first, *others = str(found.value).splitlines()
    assert first == "job 'words': percentage: expected 1 to 100, found 0"
    assert [other.removeprefix("job 'words': ")[:45] for other in others] == [
        "windows[0] ('w'): aggregation: no aggregate '",
        "triggers[0] ('t'): emit: expected 'result' or",
        "triggers[0] ('t'): sync: 'no_such_module_here",
    ]


def is_acyclic(edges: Sequence[tuple[str, str]]) -> bool:
    """By taking away what has no predecessor, until nothing is left or nothing can be taken."""
    left = set(edges)
    while left:
        takeable = {source for source, _ in left} - {to for _, to in left}
        if not takeable:
            return False
        left = {edge for edge in left if edge[0] not in takeable}
    return True


nodes = st.sampled_from("abcdef")


@settings(max_examples=100)
@given(st.lists(st.tuples(nodes, nodes), max_size=10, unique=True))
def test_a_cycle_is_found_if_and_only_if_there_is_one(edges: list[tuple[str, str]]) -> None:
    job = Job("j", tuple(edges), tuple(Task(name) for name in "abcdef"))
    cycles = [problem for problem in workflow.problems(job) if problem.startswith("workflow: a cycle")]
    assert bool(cycles) is not is_acyclic(edges)
    for problem in cycles:
        names = problem.removeprefix("workflow: a cycle: ").partition(";")[0].split(" -> ")
        path = [name.strip("'") for name in names]
        assert path[0] == path[-1]
        assert set(pairwise(path)) <= set(edges)
