"""The cluster with topics of the topics' tests."""

from tests.client.topics.conftest import fake_topics

__all__ = ["fake_topics"]
