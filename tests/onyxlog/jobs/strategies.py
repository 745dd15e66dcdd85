"""Jobs of any content: not ones that can run, but all that the classes can hold."""

from __future__ import annotations

from hypothesis import strategies as st

from onyxlog.jobs.aggregates import Aggregation
from onyxlog.jobs.flow_conditions import Action, FlowCondition
from onyxlog.jobs.grouping import GroupBy
from onyxlog.jobs.lifecycles import Lifecycle
from onyxlog.jobs.predicates import Predicate
from onyxlog.jobs.specification import Delivery, Job, Plugin, Task, TaskKind
from onyxlog.jobs.triggers import Complete, Evict, Punctuation, Segments, Timer, Trigger, Watermark
from onyxlog.jobs.windows import Fixed, Global, Session, Sliding, Window
from onyxlog.scheduling.requirements import FluxPolicy, TaskScheduler

names = st.text(max_size=4)
numbers = st.integers(-(2**40), 2**40)
texts = st.lists(names, max_size=2).map(tuple)
params = st.dictionaries(names, numbers | names | st.none() | st.lists(st.booleans(), max_size=2), max_size=2)
predicates = st.recursive(
    st.builds(Predicate, names | st.none(), params),
    lambda inner: st.builds(
        Predicate,
        all_of=st.lists(inner, max_size=2).map(tuple),
        any_of=st.lists(inner, max_size=2).map(tuple),
        none_of=st.lists(inner, max_size=2).map(tuple),
    ),
    max_leaves=4,
)
aggregations = st.recursive(
    st.builds(Aggregation, names, names | st.none(), params=params),
    lambda inner: st.builds(Aggregation, names, names | st.none(), inner),
    max_leaves=3,
)
overs = (
    st.builds(Fixed, numbers, numbers)
    | st.builds(Sliding, numbers, numbers, numbers)
    | st.builds(Session, numbers)
    | st.builds(Global)
)
ons = (
    st.builds(Segments, numbers)
    | st.builds(Timer, numbers)
    | st.builds(Punctuation, predicates)
    | st.builds(Watermark, numbers, numbers)
    | st.builds(Complete)
)
tasks = st.builds(
    Task,
    names,
    st.sampled_from(TaskKind),
    names | st.none(),
    params,
    texts,
    st.booleans(),
    st.none() | st.builds(Plugin, names, params),
    st.none() | st.builds(GroupBy, texts, names | st.none()),
    batch_size=numbers,
    max_peers=st.none() | numbers,
    flux=st.none() | st.sampled_from(FluxPolicy),
    tags=texts,
    percentage=st.none() | numbers,
    doc=names,
)
conditions = st.builds(
    FlowCondition,
    names,
    texts,
    predicates,
    st.booleans(),
    texts,
    st.booleans(),
    names | st.none(),
    st.sampled_from(Action),
    names,
)
lifecycles = st.builds(Lifecycle, names, names, params, names)
windows = st.builds(Window, names, names, overs, aggregations, names | st.none(), numbers, names)
triggers = st.builds(
    Trigger,
    names,
    names,
    ons,
    names | st.none(),
    names | st.none(),
    params,
    st.sampled_from(Evict),
    st.booleans(),
    st.booleans(),
    names,
)
jobs = st.builds(
    Job,
    names,
    st.lists(st.tuples(names, names), max_size=2).map(tuple),
    st.lists(tasks, max_size=2).map(tuple),
    st.lists(conditions, max_size=1).map(tuple),
    st.lists(lifecycles, max_size=1).map(tuple),
    st.lists(windows, max_size=1).map(tuple),
    st.lists(triggers, max_size=1).map(tuple),
    task_scheduler=st.sampled_from(TaskScheduler),
    percentage=st.none() | numbers,
    delivery=st.sampled_from(Delivery),
    pending_max=numbers,
    resume_from=st.none() | names,
    metadata=params,
)
