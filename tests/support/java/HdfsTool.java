import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;

/**
 * HDFS with two name nodes and one data node below a folder, until standard input ends.
 *
 * <p>Says first what a client has to know, as `key=value` lines, and `ready`. After the line `failover` the other name
 * node is the active one; then it says `done`.
 */
public class HdfsTool {

    private static final String SERVICE = "lake";

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        Configuration settings = new HdfsConfiguration();
        settings.set("hdfs.minidfs.basedir", arguments[0]);
        settings.setInt("dfs.replication", 1);
        settings.set("dfs.permissions.enabled", "false");
        settings.set("dfs.namenode.fs-limits.min-block-size", "4096");
        MiniDFSNNTopology topology = new MiniDFSNNTopology()
                .addNameservice(new MiniDFSNNTopology.NSConf(SERVICE)
                        .addNN(new MiniDFSNNTopology.NNConf("nn1"))
                        .addNN(new MiniDFSNNTopology.NNConf("nn2")));
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings).nnTopology(topology).numDataNodes(1).build();
        cluster.waitActive();
        cluster.transitionToActive(0);
        cluster.getFileSystem(0).mkdirs(new Path("/mounted"));
        out.println("dfs.nameservices=" + SERVICE);
        out.println("dfs.ha.namenodes." + SERVICE + "=nn1,nn2");
        for (int n = 0; n < 2; n++) {
            InetSocketAddress address = cluster.getNameNode(n).getNameNodeAddress();
            out.println("dfs.namenode.rpc-address." + SERVICE + ".nn" + (n + 1) + "=127.0.0.1:" + address.getPort());
        }
        out.println("dfs.client.failover.proxy.provider." + SERVICE
                + "=org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider");
        out.println("fs.viewfs.mounttable.tables.link./w=hdfs://" + SERVICE + "/mounted");
        out.println("fs.viewfs.mounttable.tables.linkFallback=hdfs://" + SERVICE + "/");
        out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        int active = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("failover")) {
                cluster.transitionToStandby(active);
                active = 1 - active;
                cluster.transitionToActive(active);
            }
            out.println("done");
        }
        cluster.shutdown();
        System.exit(0);
    }
}
