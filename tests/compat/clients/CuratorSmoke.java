// The Java client and Curator's recipes against three servers; driven by tests/compat/test_clients.py.
//
//   java CuratorSmoke HOST:PORT,HOST:PORT,HOST:PORT
//
// Prints "ok NAME" for each claim that held and "done" at the end. Prints "kill PORT" when it wants the server that it
// uses killed, and goes on when a line comes back on its input. Any claim that does not hold ends it with an exception.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

public final class CuratorSmoke {
    private static final int DEADLINE_S = 60;
    private static final int SESSION_MS = 20_000;
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    private static String servers;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        try (CuratorFramework one = open(); CuratorFramework two = open()) {
            plainClient(one);
            transaction(one);
            access(one);
            persistentWatch(one, two);
            lock(one, two);
            election(one, two);
            counters(one, two);
            caches(one, two);
            reconnect(one, two);
        }
        endOfSession();
        System.out.println("done");
        System.exit(0);
    }

    private static CuratorFramework open() throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.builder()
                        .connectString(servers)
                        .sessionTimeoutMs(SESSION_MS)
                        .connectionTimeoutMs(15_000)
                        .retryPolicy(new RetryNTimes(100, 200))
                        .build();
        client.start();
        check(client.blockUntilConnected(DEADLINE_S, TimeUnit.SECONDS), "connected");
        return client;
    }

    private static void plainClient(CuratorFramework curator) throws Exception {
        ZooKeeper client = curator.getZookeeperClient().getZooKeeper();
        BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        check(client.exists("/plain", events::add) == null, "nothing there yet");
        client.create("/plain", "a".getBytes(), ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        expect(events, EventType.NodeCreated, "/plain");
        Stat stat = new Stat();
        check("a".equals(new String(client.getData("/plain", events::add, stat))), "data");
        check(client.setData("/plain", "b".getBytes(), stat.getVersion()).getVersion() == 1, "version");
        expect(events, EventType.NodeDataChanged, "/plain");
        client.getChildren("/plain", events::add);
        String child =
                client.create("/plain/s-", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL);
        check(child.equals("/plain/s-0000000000"), child);
        expect(events, EventType.NodeChildrenChanged, "/plain");
        Stat born = new Stat();
        client.create("/plain/box", null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER, born);
        check(born.getEphemeralOwner() == 0 && client.getData("/plain/box", false, null) == null, "a container");
        check(client.getAllChildrenNumber("/plain") == 2, "count of descendants");
        try {
            client.setData("/plain", null, 7);
            throw new AssertionError("a wrong version was accepted");
        } catch (KeeperException.BadVersionException expected) {
            // as it should be
        }
        String made = curator.create().creatingParentContainersIfNeeded().forPath("/plain/deep/down");
        check(made.equals("/plain/deep/down"), made);
        curator.delete().deletingChildrenIfNeeded().forPath("/plain");
        System.out.println("ok watch");
    }

    private static void transaction(CuratorFramework curator) throws Exception {
        List<CuratorTransactionResult> results =
                curator.transaction()
                        .forOperations(
                                curator.transactionOp().create().forPath("/tx", "1".getBytes()),
                                curator.transactionOp().create().forPath("/tx/child"),
                                curator.transactionOp().setData().withVersion(0).forPath("/tx", "2".getBytes()),
                                curator.transactionOp().check().withVersion(1).forPath("/tx"));
        check(results.size() == 4 && results.get(2).getResultStat().getVersion() == 1, "results");
        ZooKeeper client = curator.getZookeeperClient().getZooKeeper();
        try {
            client.multi(
                    Arrays.asList(
                            Op.setData("/tx", "3".getBytes(), -1),
                            Op.check("/tx", 77),
                            Op.delete("/tx/child", -1)));
            throw new AssertionError("a multi with a wrong version went through");
        } catch (KeeperException.BadVersionException expected) {
            check(expected.getResults().size() == 3, "a result each");
        }
        check("2".equals(new String(curator.getData().forPath("/tx"))), "nothing of it happened");
        System.out.println("ok transaction");
    }

    private static void access(CuratorFramework curator) throws Exception {
        try (ZooKeeper owner = new ZooKeeper(servers, SESSION_MS, event -> {});
                ZooKeeper stranger = new ZooKeeper(servers, SESSION_MS, event -> {})) {
            owner.addAuthInfo("digest", "ann:secret".getBytes());
            owner.create("/private", "x".getBytes(), ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
            stranger.sync("/private", (code, path, context) -> {}, null);
            try {
                stranger.getData("/private", false, null);
                throw new AssertionError("a stranger read it");
            } catch (KeeperException.NoAuthException expected) {
                // as it should be
            }
            check("x".equals(new String(owner.getData("/private", false, null))), "the owner may");
            check(owner.getACL("/private", new Stat()).get(0).getId().getId().startsWith("ann:"), "getACL");
            owner.delete("/private", -1);
        }
        System.out.println("ok access");
    }

    private static void persistentWatch(CuratorFramework one, CuratorFramework two) throws Exception {
        ZooKeeper client = one.getZookeeperClient().getZooKeeper();
        BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        Watcher watcher = events::add;
        client.addWatch("/pw", watcher, AddWatchMode.PERSISTENT_RECURSIVE);
        two.create().forPath("/pw");
        expect(events, EventType.NodeCreated, "/pw");
        two.create().forPath("/pw/a");
        expect(events, EventType.NodeCreated, "/pw/a");
        two.setData().forPath("/pw/a", "x".getBytes());
        expect(events, EventType.NodeDataChanged, "/pw/a");
        two.delete().forPath("/pw/a");
        expect(events, EventType.NodeDeleted, "/pw/a");
        client.removeWatches("/pw", watcher, Watcher.WatcherType.Any, false);
        expect(events, EventType.PersistentWatchRemoved, "/pw");
        System.out.println("ok persistent watch");
    }

    private static void lock(CuratorFramework one, CuratorFramework two) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger times = new AtomicInteger();
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<Void>> workers = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            InterProcessMutex mutex = new InterProcessMutex(number % 2 == 0 ? one : two, "/lock");
            workers.add(
                    threads.submit(
                            () -> {
                                for (int turn = 0; turn < 10; turn++) {
                                    check(mutex.acquire(DEADLINE_S, TimeUnit.SECONDS), "acquired");
                                    check(inside.incrementAndGet() == 1, "alone");
                                    times.incrementAndGet();
                                    inside.decrementAndGet();
                                    mutex.release();
                                }
                                return null;
                            }));
        }
        for (Future<Void> worker : workers) {
            worker.get(DEADLINE_S, TimeUnit.SECONDS);
        }
        threads.shutdown();
        check(times.get() == 40, "all had their turns");
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(one, "/semaphore", 1);
        var lease = semaphore.acquire(DEADLINE_S, TimeUnit.SECONDS);
        check(lease != null, "lease");
        check(new InterProcessSemaphoreV2(two, "/semaphore", 1).acquire(1, TimeUnit.SECONDS) == null, "no second");
        semaphore.returnLease(lease);
        System.out.println("ok lock");
    }

    private static void election(CuratorFramework one, CuratorFramework two) throws Exception {
        LeaderLatch first = new LeaderLatch(one, "/latch", "first");
        LeaderLatch second = new LeaderLatch(two, "/latch", "second");
        first.start();
        check(first.await(DEADLINE_S, TimeUnit.SECONDS), "the first leads");
        second.start();
        check(!second.await(1, TimeUnit.SECONDS), "only one leads");
        until(() -> participants(first) == 2, "both take part");
        first.close();
        check(second.await(DEADLINE_S, TimeUnit.SECONDS), "the second takes over");
        second.close();
        System.out.println("ok election");
    }

    private static int participants(LeaderLatch latch) {
        try {
            return latch.getParticipants().size();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void counters(CuratorFramework one, CuratorFramework two) throws Exception {
        DistributedAtomicLong here = new DistributedAtomicLong(one, "/counter", new RetryNTimes(50, 10));
        DistributedAtomicLong there = new DistributedAtomicLong(two, "/counter", new RetryNTimes(50, 10));
        for (int turn = 0; turn < 10; turn++) {
            check(here.increment().succeeded() && there.increment().succeeded(), "counted");
        }
        two.sync().forPath("/counter");
        check(there.get().postValue() == 20, "twenty");
        ExecutorService threads = Executors.newFixedThreadPool(2);
        List<Future<Boolean>> entered = new ArrayList<>();
        for (CuratorFramework client : List.of(one, two)) {
            entered.add(
                    threads.submit(
                            () -> {
                                DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client, "/barrier", 2);
                                return barrier.enter(DEADLINE_S, TimeUnit.SECONDS)
                                        && barrier.leave(DEADLINE_S, TimeUnit.SECONDS);
                            }));
        }
        for (Future<Boolean> each : entered) {
            check(each.get(), "entered and left");
        }
        threads.shutdown();
        System.out.println("ok counter and barrier");
    }

    private static void caches(CuratorFramework one, CuratorFramework two) throws Exception {
        one.create().forPath("/cached");
        try (PathChildrenCache children = new PathChildrenCache(one, "/cached", true);
                TreeCache tree = new TreeCache(one, "/cached");
                CuratorCache all = CuratorCache.build(one, "/cached")) {
            children.start(PathChildrenCache.StartMode.BUILD_INITIAL_CACHE);
            tree.start();
            all.start();
            two.create().forPath("/cached/a", "1".getBytes());
            two.create().forPath("/cached/a/b", "2".getBytes());
            two.setData().forPath("/cached/a", "3".getBytes());
            until(() -> children.getCurrentData().size() == 1, "a child");
            until(() -> "3".equals(new String(children.getCurrentData("/cached/a").getData())), "its data");
            until(() -> tree.getCurrentData("/cached/a/b") != null, "the tree");
            until(() -> all.get("/cached/a/b").isPresent(), "the cache");
            until(() -> "3".equals(new String(all.get("/cached/a").get().getData())), "the cache's data");
            two.delete().deletingChildrenIfNeeded().forPath("/cached/a");
            until(() -> children.getCurrentData().isEmpty(), "no child");
            until(() -> tree.getCurrentData("/cached/a") == null, "no branch");
            until(() -> all.get("/cached/a").isEmpty(), "no entry");
        }
        System.out.println("ok cache");
    }

    private static void reconnect(CuratorFramework one, CuratorFramework two) throws Exception {
        ZooKeeper client = one.getZookeeperClient().getZooKeeper();
        long session = client.getSessionId();
        one.create().withMode(CreateMode.EPHEMERAL).forPath("/mine", "x".getBytes());
        one.create().forPath("/watched");
        BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        client.getData("/watched", event -> { if (event.getType() != EventType.None) events.add(event); }, null);
        try (CuratorCache cache = CuratorCache.build(one, "/watched");
                PersistentNode node = new PersistentNode(one, CreateMode.EPHEMERAL, false, "/kept", new byte[0])) {
            cache.start();
            node.start();
            check(node.waitForInitialCreate(DEADLINE_S, TimeUnit.SECONDS), "created");
            int before = portOf(client);
            System.out.println("kill " + before);
            check(INPUT.readLine() != null, "killed");
            two.setData().forPath("/watched", "y".getBytes());
            expect(events, EventType.NodeDataChanged, "/watched");
            until(() -> "y".equals(new String(cache.get("/watched").get().getData())), "the cache caught up");
            check(client.getSessionId() == session && one.getZookeeperClient().getZooKeeper() == client, "same session");
            check(portOf(client) != before, "another server");
            check(one.checkExists().forPath("/mine").getEphemeralOwner() == session, "the ephemeral is there");
            check(one.checkExists().forPath("/kept") != null, "the other, too");
        }
        System.out.println("ok reconnect");
    }

    private static void endOfSession() throws Exception {
        try (CuratorFramework other = open()) {
            CountDownLatch gone = new CountDownLatch(1);
            CuratorFramework client = open();
            client.create().withMode(CreateMode.EPHEMERAL).forPath("/last");
            other.sync().forPath("/last");
            check(other.checkExists().usingWatcher((Watcher) e -> gone.countDown()).forPath("/last") != null, "there");
            client.close();
            check(gone.await(5, TimeUnit.SECONDS), "told long before the session would have expired");
            check(other.checkExists().forPath("/last") == null, "gone with its session");
            check(other.checkExists().forPath("/mine") == null, "gone with its session");
        }
        System.out.println("ok close");
    }

    private static int portOf(ZooKeeper client) {
        Matcher found = Pattern.compile("remoteserver:\\S*?:(\\d+) ").matcher(client.toString());
        check(found.find(), client.toString());
        return Integer.parseInt(found.group(1));
    }

    private static void expect(BlockingQueue<WatchedEvent> events, EventType type, String path) throws Exception {
        WatchedEvent event = events.poll(DEADLINE_S, TimeUnit.SECONDS);
        check(event != null, "an event at " + path + " within " + DEADLINE_S + " s");
        check(event.getType() == type && path.equals(event.getPath()), "expected " + type + " " + path + ", got " + event);
    }

    private static void until(BooleanSupplier condition, String what) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_S);
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, what + " within " + DEADLINE_S + " s");
            Thread.sleep(20);
        }
    }

    private static void check(boolean held, String what) {
        if (!held) {
            throw new AssertionError(what);
        }
    }
}
