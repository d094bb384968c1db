//! The Redis sink, on a real server and a real cluster.

use std::collections::HashMap;
use std::time::Duration;

use postrider_relay::{
    Batch, Outcome, RouteSettings, Sink,
    message::{EnvelopeSettings, Form},
    sinks::{RedisSettings, RedisSink},
};
use postrider_store::Event;
use postrider_testkit::{FaultProxy, PrivateServer, TlsFront, eventually, relay::held_event, skip};
use tokio::time::Instant;

/// A server to test on, with stream names that no other test uses.
struct Place {
    url: String,
    prefix: String,
}

/// An entry of a stream: its fields.
type Fields = HashMap<String, String>;

impl Place {
    fn find(variable: &str, test: &str) -> Option<Self> {
        let Ok(url) = std::env::var(variable) else {
            skip(test, &format!("the variable {variable} is not set"));
            return None;
        };
        Some(Self { url, prefix: uuid::Uuid::new_v4().simple().to_string() })
    }

    fn stream(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    fn settings(&self, stream: &str) -> RedisSettings {
        RedisSettings::new("streams", &self.url, self.stream(stream))
    }

    async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        if self.url.contains(',') {
            let nodes = self.url.split(',').map(|node| match node.contains("://") {
                true => node.to_owned(),
                false => format!("redis://{node}"),
            });
            let client = redis::cluster::ClusterClient::new(nodes).unwrap();
            let mut connection = client.get_async_connection().await.unwrap();
            return command.query_async(&mut connection).await.unwrap();
        }
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        command.query_async(&mut connection).await.unwrap()
    }

    async fn entries(&self, stream: &str) -> Vec<Fields> {
        let stream = self.stream(stream);
        let range: Vec<(String, Fields)> = self.ask(&["XRANGE", &stream, "-", "+"]).await;
        range.into_iter().map(|(_, fields)| fields).collect()
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("redis://").trim_end_matches('/')
    }

    /// Makes this server a replica of another one, and waits until it has all of its data.
    async fn follow(&self, master: &Self) {
        let (host, port) = master.address().rsplit_once(':').unwrap();
        let _: () = self.ask(&["REPLICAOF", host, port]).await;
        eventually("the replica is in step", async || {
            let info: String = self.ask(&["INFO", "replication"]).await;
            info.contains("master_link_status:up").then_some(())
        })
        .await;
    }

    async fn until_it_has_all_of(&self, master: &Self) {
        let offset = async |place: &Self| {
            let info: String = place.ask(&["INFO", "replication"]).await;
            let offset = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
            offset.unwrap().trim().parse::<u64>().unwrap()
        };
        let wanted = offset(master).await;
        let reached = async || (offset(self).await >= wanted).then_some(());
        eventually("the replica has all of its master", reached).await;
    }

    /// Returns the event ids of a stream, as the numbers from which they were made.
    async fn ids(&self, stream: &str) -> Vec<i64> {
        let id = |fields: &Fields| i64::from_str_radix(&fields["postrider-event-id"][24..], 16);
        self.entries(stream).await.iter().map(|fields| id(fields).unwrap()).collect()
    }
}

/// Runs a test on a single server and on a cluster.
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod single {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let test = concat!("redis_sink::single::", stringify!($case));
                if let Some(place) = super::Place::find("REDIS_URL", test) {
                    super::$case(place).await;
                }
            })*
        }
        mod cluster {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let test = concat!("redis_sink::cluster::", stringify!($case));
                if let Some(place) = super::Place::find("REDIS_CLUSTER_URL", test) {
                    super::$case(place).await;
                }
            })*
        }
    };
}

on_both!(
    an_entry_holds_the_event_and_its_identity,
    a_whole_batch_arrives_in_the_order_of_each_stream,
    a_name_that_holds_something_else_rejects_its_own_events_only,
    with_order_kept_a_key_does_not_overtake_itself_by_another_stream,
    a_stream_is_trimmed_to_about_its_length,
    large_events_arrive_whole,
    check_finds_what_is_wrong_and_changes_nothing,
);

fn sink(settings: RedisSettings) -> RedisSink {
    RedisSink::new(settings).unwrap()
}

async fn deliver(sink: &RedisSink, events: &[Event], keep_order: bool) -> Vec<Outcome> {
    let deadline = Instant::now() + Duration::from_secs(30);
    sink.deliver(Batch::new(events, deadline).in_order(keep_order)).await
}

fn of_key(id: i64, key: &str, event_type: &str) -> Event {
    Event { aggregate_id: key.to_owned(), event_type: event_type.to_owned(), ..held_event(id) }
}

async fn an_entry_holds_the_event_and_its_identity(place: Place) {
    let event = Event {
        headers: Some(r#"{"traceparent":"00-1","payload":"forged","tenant":"Grüße"}"#.to_owned()),
        content_hash: Some("abc".to_owned()),
        ..held_event(7)
    };
    let event = std::slice::from_ref(&event);
    let envelope =
        EnvelopeSettings { form: Form::CloudEventsBinary, ..EnvelopeSettings::default() };
    let plain = sink(place.settings("{{{aggregate_type}}}"));
    let cloud = sink(RedisSettings { envelope, ..place.settings("cloud") });
    assert_eq!(deliver(&plain, event, false).await, [Outcome::Delivered]);
    assert_eq!(deliver(&cloud, event, false).await, [Outcome::Delivered]);
    let [fields] = &place.entries("{order}").await[..] else { panic!("one entry") };
    let wanted = [
        ("postrider-event-id", event[0].event_id.as_str()),
        ("postrider-event-type", "OrderPlaced"),
        ("postrider-aggregate-type", "order"),
        ("postrider-aggregate-id", "order-7"),
        ("postrider-content-hash", "abc"),
        ("traceparent", "00-1"),
        ("tenant", "Grüße"),
        ("content-type", "application/json"),
        ("payload", &event[0].payload),
    ];
    assert_eq!(*fields, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let fields = &place.entries("cloud").await[0];
    assert_eq!(fields["ce_id"], event[0].event_id);
    assert_eq!(fields["ce_source"], "/order");
    plain.close().await;
    assert_eq!(deliver(&plain, event, false).await, [Outcome::Delivered], "connects again");
}

async fn a_whole_batch_arrives_in_the_order_of_each_stream(place: Place) {
    let sink = sink(place.settings("{aggregate_id}"));
    for keep_order in [false, true] {
        let events: Vec<_> = (1..=500)
            .map(|id| of_key(id, &format!("{keep_order}-{}", id % 7), "OrderPlaced"))
            .collect();
        assert_eq!(deliver(&sink, &events, keep_order).await, vec![Outcome::Delivered; 500]);
        for key in 0..7 {
            let wanted: Vec<i64> = (1..=500).filter(|id| id % 7 == key).collect();
            assert_eq!(place.ids(&format!("{keep_order}-{key}")).await, wanted);
        }
    }
}

async fn a_name_that_holds_something_else_rejects_its_own_events_only(place: Place) {
    let _: () = place.ask(&["SET", &place.stream("taken"), "x"]).await;
    let sink = sink(place.settings("{aggregate_id}"));
    let events: Vec<_> = (1..=8)
        .map(|id| of_key(id, if id % 2 == 0 { "taken" } else { "free" }, "OrderPlaced"))
        .collect();
    for (event, outcome) in events.iter().zip(deliver(&sink, &events, true).await) {
        match event.id % 2 {
            0 => assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}"),
            _ => assert_eq!(outcome, Outcome::Delivered),
        }
    }
    assert_eq!(place.ids("free").await, [1, 3, 5, 7]);
}

/// 1 → a, 2 → taken, 3 → a: the third must not arrive before the second is done.
async fn with_order_kept_a_key_does_not_overtake_itself_by_another_stream(place: Place) {
    let _: () = place.ask(&["SET", &place.stream("taken"), "x"]).await;
    let routes = vec![RouteSettings {
        event_type: Some("Odd".to_owned()),
        to: place.stream("taken"),
        ..RouteSettings::default()
    }];
    let sink = sink(RedisSettings { routes, ..place.settings("a{header.region}") });
    let with_region =
        |event: Event| Event { headers: Some(r#"{"region":""}"#.to_owned()), ..event };
    let mut events = [
        of_key(1, "k", "Usual"),
        of_key(2, "k", "Odd"),
        of_key(3, "k", "Usual"),
        of_key(4, "other", "Usual"),
        of_key(5, "lacks", "Usual"),
        of_key(6, "lacks", "Usual"),
    ]
    .map(with_region);
    events[4].headers = None;
    let outcomes = deliver(&sink, &events, true).await;
    assert_eq!(outcomes[0], Outcome::Delivered);
    assert!(matches!(outcomes[1], Outcome::Rejected { .. }), "{outcomes:?}");
    assert_eq!(outcomes[2..4], [Outcome::Untried, Outcome::Delivered]);
    assert!(matches!(outcomes[4], Outcome::NoRoute { .. }), "{outcomes:?}");
    assert_eq!(outcomes[5], Outcome::Untried);
    assert_eq!(place.ids("a").await, [1, 4]);
    let outcomes = deliver(&sink, &events, false).await;
    assert_eq!((&outcomes[2], &outcomes[5]), (&Outcome::Delivered, &Outcome::Delivered));
}

async fn a_stream_is_trimmed_to_about_its_length(place: Place) {
    let sink = sink(RedisSettings { stream_length_max: Some(100), ..place.settings("short") });
    for batch in 0..4 {
        let events: Vec<_> = (1..=500).map(|id| held_event(batch * 500 + id)).collect();
        assert_eq!(deliver(&sink, &events, true).await, vec![Outcome::Delivered; 500]);
    }
    let length: usize = place.ask(&["XLEN", &place.stream("short")]).await;
    assert!((100..400).contains(&length), "{length}");
    assert_eq!(place.ids("short").await.last(), Some(&2_000));
}

async fn large_events_arrive_whole(place: Place) {
    let sink = sink(place.settings("large"));
    let payload = format!("\"{}\"", "é".repeat(2 * 1_024 * 1_024 - 8));
    let events = [1, 2].map(|id| Event { payload: payload.clone(), ..held_event(id) });
    assert_eq!(deliver(&sink, &events, true).await, vec![Outcome::Delivered; 2]);
    let entries = place.entries("large").await;
    assert!(entries.iter().all(|fields| fields["payload"] == payload) && entries.len() == 2);
}

async fn check_finds_what_is_wrong_and_changes_nothing(place: Place) {
    let _: () = place.ask(&["SET", &place.stream("taken"), "x"]).await;
    sink(place.settings("free")).check().await.unwrap();
    sink(place.settings("{aggregate_id}")).check().await.unwrap();
    let found: bool = place.ask(&["EXISTS", &place.stream("free")]).await;
    assert!(!found, "a check writes nothing");
    let error = sink(place.settings("taken")).check().await.unwrap_err().to_string();
    for word in ["`streams`", "`stream`", "string"] {
        assert!(error.contains(word), "{error}");
    }
    let timeout = Duration::from_millis(500);
    let cluster = place.url.contains(',');
    for (url, word) in [
        ("redis://app:hush@127.0.0.1:1".to_owned(), "127.0.0.1:1"),
        (place.url.replace("redis://", "rediss://"), "`url`"),
    ] {
        let settings =
            RedisSettings { url, timeout, cluster: Some(cluster), ..place.settings("free") };
        let error = sink(settings).check().await.unwrap_err().to_string();
        assert!(error.contains("`streams`") && error.contains(word), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_delivers_and_a_certificate_that_nobody_trusts_is_named() {
    let Some(place) = Place::find("REDIS_URL", "redis_sink::tls") else { return };
    let (_, address) = place.url.split_once("://").unwrap();
    let front = TlsFront::before(address.trim_end_matches('/')).await;
    let url = format!("rediss://{}", front.address());
    let settings = |ca| RedisSettings { url: url.clone(), ca, ..place.settings("secret") };
    let trusting = sink(settings(Some(front.ca())));
    trusting.check().await.unwrap();
    let events = [held_event(1), held_event(2)];
    assert_eq!(deliver(&trusting, &events, true).await, vec![Outcome::Delivered; 2]);
    assert_eq!(place.ids("secret").await, [1, 2]);
    let error = sink(settings(None)).check().await.unwrap_err().to_string();
    assert!(error.contains("`streams`") && error.contains("`url`"), "{error}");

    let plain = RedisSettings { ca: Some(front.ca()), ..place.settings("secret") };
    let error = RedisSink::new(plain).err().unwrap().to_string();
    assert!(error.contains("rediss://"), "{error}");
    let error = RedisSink::new(settings(Some("no/such/file".into()))).err().unwrap().to_string();
    assert!(error.contains("`tls.ca`") && error.contains("no/such/file"), "{error}");
}

async fn behind_a_proxy(test: &str) -> Option<(Place, FaultProxy, RedisSink)> {
    let place = Place::find("REDIS_URL", test)?;
    let (proxy, url) = FaultProxy::in_front_of(&place.url).await;
    let timeout = Duration::from_millis(500);
    let sink = sink(RedisSettings { url, timeout, ..place.settings("s") });
    Some((place, proxy, sink))
}

fn all_down(outcomes: &[Outcome]) {
    for outcome in outcomes {
        assert!(matches!(outcome, Outcome::Down { credentials: false, .. }), "{outcome:?}");
    }
}

/// The entries are in the stream, but the answer was lost: sent again, each is there twice, and the
/// first copies are in order.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_added_them_and_we_never_heard_so_they_are_added_again_in_order() {
    let Some((place, proxy, sink)) = behind_a_proxy("redis_sink::lost_answer").await else {
        return;
    };
    let events: Vec<_> = (1..=5).map(|id| of_key(id, "k", "OrderPlaced")).collect();
    assert_eq!(deliver(&sink, &events[..1], true).await, [Outcome::Delivered]);
    proxy.lose_answer_to(b"XADD");
    all_down(&deliver(&sink, &events[1..], true).await);
    assert_eq!(place.ids("s").await, [1, 2, 3, 4, 5], "all of them or none");
    assert_eq!(deliver(&sink, &events[1..], true).await, vec![Outcome::Delivered; 4]);
    assert_eq!(place.ids("s").await, [1, 2, 3, 4, 5, 2, 3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_and_comes_back_is_down_meanwhile_and_not_longer() {
    let Some((place, proxy, sink)) = behind_a_proxy("redis_sink::outage").await else { return };
    let events: Vec<_> = (1..=4).map(held_event).collect();
    proxy.cut();
    all_down(&deliver(&sink, &events, false).await);
    proxy.pass();
    assert_eq!(deliver(&sink, &events[..2], false).await, vec![Outcome::Delivered; 2]);
    proxy.blackhole();
    let started = Instant::now();
    all_down(&deliver(&sink, &events[2..], false).await);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    proxy.pass();
    assert_eq!(deliver(&sink, &events[2..], false).await, vec![Outcome::Delivered; 2]);
    let ids = place.ids("s").await;
    assert!((1..=4).all(|id| ids.contains(&id)), "{ids:?}");
}

/// The address leads to the promoted replica, while the old master, by now a replica itself, keeps
/// the connection open and answers each write with READONLY.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_was_promoted_behind_the_same_address_is_found() {
    let test = "redis_sink::promoted";
    let Some(one) = PrivateServer::of("redis", "REDIS_URL", test).await else { return };
    let other = PrivateServer::of("redis", "REDIS_URL", test).await.unwrap();
    let place =
        |server: &PrivateServer| Place { url: server.url.clone(), prefix: "promoted".to_owned() };
    let (mut master, mut replica) = (place(&one), place(&other));
    replica.follow(&master).await;
    let (proxy, url) = FaultProxy::in_front_of(&master.url).await;
    let sink = sink(RedisSettings { url, ..master.settings("s") });
    assert_eq!(deliver(&sink, &[held_event(1)], true).await, [Outcome::Delivered]);
    // A probe is one event; several are a transaction, which the server refuses in another way.
    for events in [vec![held_event(2)], vec![held_event(3), held_event(4)]] {
        replica.until_it_has_all_of(&master).await;
        let _: () = replica.ask(&["REPLICAOF", "NO", "ONE"]).await;
        master.follow(&replica).await;
        std::mem::swap(&mut master, &mut replica);
        proxy.lead_to(master.address());
        let outcomes = deliver(&sink, &events, true).await;
        all_down(&outcomes);
        let Outcome::Down { error, .. } = &outcomes[0] else { unreachable!() };
        assert!(error.contains("read only replica"), "{error}");
        let outcomes = deliver(&sink, &events, true).await;
        assert_eq!(outcomes, vec![Outcome::Delivered; events.len()], "the new master is asked");
    }
    assert_eq!(master.ids("s").await, [1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_told_apart_from_an_outage() {
    let Some(place) = Place::find("REDIS_URL", "redis_sink::credentials") else { return };
    let user = format!("u{}", place.prefix);
    let as_user = |password: &str| {
        let url = place.url.replace("redis://", &format!("redis://{user}:{password}@"));
        sink(RedisSettings { url, ..place.settings("{aggregate_id}") })
    };
    let allowed = format!("~{}", place.stream("mine"));
    let _: () = place.ask(&["ACL", "SETUSER", &user, "on", ">right", &allowed, "+@all"]).await;
    let events = [of_key(1, "mine", "A"), of_key(2, "theirs", "A"), of_key(3, "theirs", "A")];
    let wrong = deliver(&as_user("wrong"), &events[..1], true).await;
    let right = deliver(&as_user("right"), &events, true).await;
    // Before any assertion can fail: the user exists on the shared server, not only in this test.
    let _: () = place.ask(&["ACL", "DELUSER", &user]).await;
    assert!(matches!(wrong[0], Outcome::Down { credentials: true, .. }), "{wrong:?}");
    assert_eq!(right[0], Outcome::Delivered);
    for outcome in &right[1..] {
        assert!(matches!(outcome, Outcome::Down { credentials: true, .. }), "{outcome:?}");
    }
}

/// By the version of the server, the transaction is still open then, and the server would only
/// queue what is sent next.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_exec_is_refused_credentials_and_the_connection_is_not_used_again() {
    let test = "redis_sink::a_refused_exec";
    let Some(place) = Place::find("REDIS_URL", test) else { return };
    let user = format!("user-{}", place.prefix);
    let url = place.url.replace("redis://", &format!("redis://{user}:right@"));
    let sink = sink(RedisSettings { url, ..place.settings("s") });
    let set = async |rights: &[&str]| {
        let words = [&["ACL", "SETUSER", &user][..], rights].concat();
        let _: () = place.ask(&words).await;
    };
    set(&["on", ">right", "~*", "+@all", "-exec"]).await;
    let events = [of_key(1, "k", "A"), of_key(2, "k", "A"), of_key(3, "k", "A")];
    let refused = deliver(&sink, &events[..2], true).await;
    // One event needs no transaction.
    let single = deliver(&sink, &events[2..], true).await;
    set(&["+exec"]).await;
    let allowed = deliver(&sink, &events[..2], true).await;
    let _: () = place.ask(&["ACL", "DELUSER", &user]).await;
    for outcome in &refused {
        let Outcome::Down { credentials: true, error, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(error.contains("exec"), "{error}");
    }
    assert_eq!((single, allowed), (vec![Outcome::Delivered], vec![Outcome::Delivered; 2]));
    assert_eq!(place.ids("s").await, [3, 1, 2]);
}

/// Sends a command to one node of a cluster.
async fn ask_node<T: redis::FromRedisValue>(node: &str, words: &str) -> T {
    let client = redis::Client::open(format!("redis://{node}")).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let words: Vec<&str> = words.split(' ').collect();
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.unwrap()
}

/// The old node adds nothing and says where the slot is, while it is being moved and afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_moves_to_another_node_is_followed_and_none_of_its_order_is_lost() {
    let test = "redis_sink::a_stream_that_moves";
    let server = PrivateServer::of("redis-cluster", "REDIS_CLUSTER_URL", test).await;
    let Some(server) = server else { return };
    let place = Place { url: server.url.clone(), prefix: "moving".to_owned() };
    let sink = sink(place.settings("s"));
    let events: Vec<_> = (1..=8).map(|id| of_key(id, "k", "OrderPlaced")).collect();
    assert_eq!(deliver(&sink, &events[..3], true).await, vec![Outcome::Delivered; 3]);

    let nodes: Vec<&str> = place.url.strip_prefix("redis://").unwrap().split(',').collect();
    let stream = place.stream("s");
    let slot: u32 = ask_node(nodes[0], &format!("CLUSTER KEYSLOT {stream}")).await;
    let mut owner = nodes[0];
    for node in &nodes {
        let held: usize = ask_node(node, &format!("CLUSTER COUNTKEYSINSLOT {slot}")).await;
        owner = if held == 1 { node } else { owner };
    }
    let next = nodes.iter().copied().find(|node| *node != owner).unwrap();
    let (owner_id, next_id): (String, String) =
        (ask_node(owner, "CLUSTER MYID").await, ask_node(next, "CLUSTER MYID").await);
    let (host, port) = next.split_once(':').unwrap();
    let set = format!("CLUSTER SETSLOT {slot}");
    let _: () = ask_node(next, &format!("{set} IMPORTING {owner_id}")).await;
    let _: () = ask_node(owner, &format!("{set} MIGRATING {next_id}")).await;
    let _: () = ask_node(owner, &format!("MIGRATE {host} {port} {stream} 0 5000")).await;
    // One event is a command, several are a transaction.
    assert_eq!(deliver(&sink, &events[3..4], true).await, [Outcome::Delivered]);
    assert_eq!(deliver(&sink, &events[4..6], true).await, vec![Outcome::Delivered; 2]);
    for node in [next, owner] {
        let _: () = ask_node(node, &format!("{set} NODE {next_id}")).await;
    }
    assert_eq!(deliver(&sink, &events[6..8], true).await, vec![Outcome::Delivered; 2]);
    assert_eq!(place.ids("s").await, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn wrong_settings_are_refused_by_name() {
    let settings = || RedisSettings::new("streams", "redis://127.0.0.1", "s");
    for (settings, word) in [
        (RedisSettings { url: "http://h".to_owned(), ..settings() }, "`url`"),
        (RedisSettings { stream: Some("{x}".to_owned()), ..settings() }, "`stream`"),
        (RedisSettings { stream: None, ..settings() }, "[[sink.route]]"),
        (RedisSettings { stream_length_max: Some(0), ..settings() }, "`stream_length_max`"),
    ] {
        let error = RedisSink::new(settings).err().unwrap().to_string();
        assert!(error.contains(word) && error.contains("`streams`"), "{error}");
    }
}
