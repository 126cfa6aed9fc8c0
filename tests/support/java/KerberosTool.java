import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.minikdc.MiniKdc;
import org.apache.hadoop.security.UserGroupInformation;

import java.io.File;
import java.io.PrintStream;
import java.util.Properties;

/**
 * HDFS with Kerberos below a folder, one name node and one data node, and the Kerberos server, until standard input ends.
 *
 * <p>Says first what a client has to know, as `key=value` lines, and `ready`. The keytab is for the user `alice`.
 */
public class KerberosTool {

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        File folder = new File(arguments[0]);
        Properties kdcSettings = MiniKdc.createConf();
        MiniKdc kdc = new MiniKdc(kdcSettings, new File(folder, "kdc"));
        kdc.start();
        File services = new File(folder, "services.keytab");
        File users = new File(folder, "users.keytab");
        kdc.createPrincipal(services, "hdfs/localhost", "HTTP/localhost");
        kdc.createPrincipal(users, "alice");
        String service = "hdfs/localhost@" + kdc.getRealm();
        Configuration settings = new HdfsConfiguration();
        settings.set("hdfs.minidfs.basedir", new File(folder, "data").getPath());
        settings.setInt("dfs.replication", 1);
        settings.set("dfs.namenode.fs-limits.min-block-size", "4096");
        settings.set("hadoop.security.authentication", "kerberos");
        settings.setBoolean("hadoop.security.authorization", true);
        for (String node : new String[] {"namenode", "datanode"}) {
            settings.set("dfs." + node + ".kerberos.principal", service);
            settings.set("dfs." + node + ".keytab.file", services.getPath());
        }
        settings.set("dfs.web.authentication.kerberos.principal", "HTTP/localhost@" + kdc.getRealm());
        settings.set("dfs.web.authentication.kerberos.keytab", services.getPath());
        settings.setBoolean("dfs.block.access.token.enable", true);
        settings.set("dfs.data.transfer.protection", arguments[1]);
        settings.set("hadoop.rpc.protection", arguments[1]);
        settings.setBoolean("ignore.secure.ports.for.testing", true);
        UserGroupInformation.setConfiguration(settings);
        UserGroupInformation.loginUserFromKeytab(service, services.getPath());
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings).numDataNodes(1).build();
        cluster.waitActive();
        org.apache.hadoop.fs.Path home = new org.apache.hadoop.fs.Path("/alice");
        cluster.getFileSystem().mkdirs(home);
        cluster.getFileSystem().setOwner(home, "alice", "alice");
        out.println("krb5=" + kdc.getKrb5conf().getPath());
        out.println("keytab=" + users.getPath());
        out.println("principal=alice@" + kdc.getRealm());
        out.println("uri=hdfs://localhost:" + cluster.getNameNodePort());
        out.println("ready");
        while (System.in.read() >= 0) {
        }
        cluster.shutdown();
        kdc.stop();
        System.exit(0);
    }
}
