// Java clients that follow the ensemble, while its members change; driven by tests/compat/test_following.py.
//
//   java FollowEnsemble HOST:PORT
//
// Two clients are told of one server: ZooKeeper's own, which gives every new configuration to `updateServerList`, and
// Curator's, which does by itself. For each line "expect HOST:PORT,…" on its input it waits until both go by exactly these
// servers, writes and reads through both, and prints "ok". For "operate JOINING LEAVING" it changes the members, as the
// super user, and prints the configuration that was answered in one line. At the end of its input both still have the
// session that they began with.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.util.ConfigUtils;

public final class FollowEnsemble {
    private static final int DEADLINE_S = 90;
    private static final int SESSION_MS = 30_000;

    /** ZooKeeper's own client, and the servers that it was last told. */
    private static final class Plain {
        private final ZooKeeperAdmin client;
        private volatile String servers;

        Plain(String server) throws Exception {
            servers = server;
            client = new ZooKeeperAdmin(server, SESSION_MS, event -> {});
            until(() -> client.getState().isConnected(), "a connection of ZooKeeper's client");
            read();
        }

        private void read() throws Exception {
            follow(retried(() -> client.getConfig(this::onChange, new Stat())));
        }

        private void onChange(WatchedEvent event) {
            if (event.getType() != Watcher.Event.EventType.NodeDataChanged) return;
            new Thread(() -> {
                try {
                    read();
                } catch (Exception error) {
                    fail(error);
                }
            }).start();
        }

        private synchronized void follow(byte[] data) throws Exception {
            String found = ConfigUtils.getClientConfigStr(new String(data, StandardCharsets.UTF_8)).split(" ", 2)[1];
            if (!found.isEmpty()) {
                client.updateServerList(found);
                servers = found;
            }
        }
    }

    private FollowEnsemble() {}

    public static void main(String[] arguments) throws Exception {
        Plain plain = new Plain(arguments[0]);
        plain.client.addAuthInfo("digest", "super:test".getBytes(StandardCharsets.UTF_8));
        try (CuratorFramework curator = CuratorFrameworkFactory.newClient(
                arguments[0], SESSION_MS, 15_000, new RetryNTimes(300, 200))) {
            curator.start();
            until(() -> curator.getZookeeperClient().isConnected(), "a connection of Curator's client");
            long first = curator.getZookeeperClient().getZooKeeper().getSessionId();
            long own = plain.client.getSessionId();
            retried(() -> created(plain.client));
            curator.create().withMode(CreateMode.EPHEMERAL).forPath("/curator");
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split(" ");
                if (words[0].equals("operate")) {
                    String joining = words[1].equals("-") ? null : words[1];
                    String leaving = words[2].equals("-") ? null : words[2];
                    byte[] data = retried(() -> plain.client.reconfigure(joining, leaving, null, -1, new Stat()));
                    System.out.println(new String(data, StandardCharsets.UTF_8).replace('\n', ' '));
                    continue;
                }
                Set<String> expected = setOf(words[1]);
                until(() -> setOf(plain.servers).equals(expected), "ZooKeeper's client to know " + expected);
                until(
                        () -> setOf(curator.getZookeeperClient().getCurrentConnectionString()).equals(expected),
                        "Curator to know " + expected);
                retried(() -> plain.client.setData("/java", line(expected), -1));
                curator.setData().forPath("/curator", line(expected));
                check(Arrays.equals(retried(() -> plain.client.getData("/java", false, null)), line(expected)));
                check(Arrays.equals(curator.getData().forPath("/curator"), line(expected)));
                System.out.println("ok");
            }
            check(plain.client.getSessionId() == own);
            check(curator.getZookeeperClient().getZooKeeper().getSessionId() == first);
            check(retried(() -> plain.client.exists("/java", false)).getEphemeralOwner() == own);
            check(curator.checkExists().forPath("/curator").getEphemeralOwner() == first);
        }
        plain.client.close();
        System.out.println("done");
        System.exit(0);
    }

    /** Creates the client's znode; a lost connection may have lost the answer only. */
    private static String created(ZooKeeperAdmin client) throws Exception {
        try {
            return client.create("/java", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        } catch (KeeperException.NodeExistsException error) {
            return "/java";
        }
    }

    private static byte[] line(Set<String> servers) {
        return String.join(",", servers).getBytes(StandardCharsets.UTF_8);
    }

    private static Set<String> setOf(String servers) {
        return new TreeSet<>(Arrays.asList(servers.split(",")));
    }

    private interface Call<T> {
        T call() throws Exception;
    }

    /** The result, once there is a connection: servers are killed and removed meanwhile. */
    private static <T> T retried(Call<T> call) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_S);
        while (true) {
            try {
                return call.call();
            } catch (KeeperException.ConnectionLossException error) {
                if (System.nanoTime() > deadline) throw error;
                Thread.sleep(100);
            }
        }
    }

    private static void until(BooleanSupplier condition, String what) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_S);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) throw new AssertionError("waited in vain for " + what);
            Thread.sleep(20);
        }
    }

    private static void check(boolean held) {
        if (!held) throw new AssertionError("a claim that does not hold");
    }

    private static void fail(Exception error) {
        error.printStackTrace();
        System.exit(1);
    }
}
