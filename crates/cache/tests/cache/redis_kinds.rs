//! Every way to Redis, each with real servers: a cluster, sentinels, TLS.

use std::process::Command;
use std::sync::Arc;

use forespeak_cache as cache;
use testkit::redis_server::{RedisServer, free_port};

use cache::{Cache, RedisAddress, Scope, Secret, Stores};

use crate::support::{Server, ask, chat, until};

fn cache_at(address: String) -> Arc<Cache> {
    let stores = Stores {
        memory_bytes: 0,
        redis: Some(address),
    };
    Arc::new(Cache::new(&Secret::from_text("s"), &stores).unwrap())
}

/// Answers are kept by one gateway and found by another, and what one invalidates the other forgets.
async fn gateways_share(address: &str) {
    let (one, other) = (cache_at(address.to_owned()), cache_at(address.to_owned()));
    let (server, body) = (Server::default(), chat("hi"));
    until("one keeps it", async || {
        let how = ask(&one, &body, || server.answer(&body)).await.how;
        until("nothing is in flight", async || one.counts().flights == 0).await;
        how == "HIT"
    })
    .await;
    let kept = server.count();
    until("the other finds it", async || {
        ask(&other, &body, || server.answer(&body)).await.how == "HIT"
    })
    .await;
    assert!(server.count() >= kept);
    until("it is told", async || one.invalidate(Scope::All).await).await;
    until("the other has heard", async || {
        let how = ask(&other, &body, || server.answer(&body)).await.how;
        until("nothing is in flight", async || other.counts().flights == 0).await;
        how == "MISS"
    })
    .await;
}

fn redis_cli(port: u16, arguments: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["-p", &port.to_string()])
        .args(arguments)
        .output()
        .expect("redis-cli is needed for this test; it comes with redis-server");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn a_cluster_is_shared() {
    // A cluster's nodes talk to each other 10,000 ports higher.
    let port = || loop {
        let port = free_port().unwrap();
        if port < 50_000 {
            return port;
        }
    };
    let node = || RedisServer::with(port(), |_| vec!["--cluster-enabled", "yes"]).unwrap();
    let nodes = [node(), node(), node()];
    let hosts: Vec<String> = nodes
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.port()))
        .collect();
    until("the nodes answer", async || {
        let pong = |node: &RedisServer| redis_cli(node.port(), &["PING"]).starts_with("PONG");
        nodes.iter().all(pong)
    })
    .await;
    let mut create = vec!["--cluster", "create"];
    create.extend(hosts.iter().map(String::as_str));
    create.extend(["--cluster-replicas", "0", "--cluster-yes"]);
    redis_cli(nodes[0].port(), &create);
    until("the cluster is whole", async || {
        let is_whole = |node: &RedisServer| {
            redis_cli(node.port(), &["CLUSTER", "INFO"]).contains("cluster_state:ok")
        };
        nodes.iter().all(is_whole)
    })
    .await;
    gateways_share(&format!("redis-cluster://{}", hosts.join(","))).await;
}

#[tokio::test]
async fn sentinels_are_asked_for_the_master() {
    let master = RedisServer::with(free_port().unwrap(), |_| Vec::<&str>::new()).unwrap();
    let monitored = format!("sentinel monitor main 127.0.0.1 {} 1\n", master.port());
    let sentinel = RedisServer::sentinel(free_port().unwrap(), &monitored).unwrap();
    gateways_share(&format!(
        "redis-sentinel://127.0.0.1:{}/main",
        sentinel.port()
    ))
    .await;
}

fn openssl(arguments: &[&str], folder: &std::path::Path) {
    let made = Command::new("openssl")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("openssl is needed for this test");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

/// An authority of our own and a server's certificate from it, for 127.0.0.1.
fn make_certificates(folder: &std::path::Path) {
    openssl(
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ],
        folder,
    );
    openssl(
        &[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            "/CN=redis",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            "redis.key",
            "-out",
            "redis.csr",
        ],
        folder,
    );
    openssl(
        &[
            "x509",
            "-req",
            "-in",
            "redis.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-days",
            "2",
            "-copy_extensions",
            "copy",
            "-out",
            "redis.pem",
        ],
        folder,
    );
}

#[tokio::test]
async fn tls_with_an_authority_of_ones_own_is_shared() {
    let port = free_port().unwrap().to_string();
    let redis = RedisServer::with(0, |folder| {
        make_certificates(folder);
        let file = |name: &str| folder.join(name).display().to_string();
        vec![
            "--tls-port".to_owned(),
            port.clone(),
            "--tls-cert-file".to_owned(),
            file("redis.pem"),
            "--tls-key-file".to_owned(),
            file("redis.key"),
            "--tls-ca-cert-file".to_owned(),
            file("ca.pem"),
            "--tls-auth-clients".to_owned(),
            "no".to_owned(),
        ]
    })
    .unwrap();
    let authority = redis.folder().join("ca.pem");
    let address = format!("rediss://127.0.0.1:{port}");
    gateways_share(&format!("{address}?ca={}", authority.display())).await;
    // Without it nobody vouches for the server, and nothing is kept there.
    let address = RedisAddress::parse(&address).unwrap();
    assert!(cache::RedisLink::connect(&address).await.is_err());
}
