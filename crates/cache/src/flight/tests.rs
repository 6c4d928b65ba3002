use std::sync::atomic::AtomicBool;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use proptest::prelude::*;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;

const QUESTION: Fingerprint = Fingerprint([1; 32]);
const EVENTS: Wants = Wants {
    stream: true,
    include_usage: true,
};

type Sender = UnboundedSender<Result<Part, Broken>>;

fn source() -> (Sender, Source) {
    let (sender, mut receiver) = unbounded_channel();
    let source = stream::poll_fn(move |context| receiver.poll_recv(context));
    (sender, Box::pin(source))
}

fn head(status: StatusCode, kind: &'static str) -> Result<Part, Broken> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(Part::Head(Head { status, headers }))
}

fn events_head() -> Result<Part, Broken> {
    head(StatusCode::OK, "text/event-stream; charset=utf-8")
}

fn data(text: &str) -> Result<Part, Broken> {
    Ok(Part::Data(Bytes::copy_from_slice(text.as_bytes())))
}

fn leader(flights: &Arc<Flights>, wants: Wants) -> Passage {
    match flights.board(QUESTION, wants) {
        Boarded::Leader(passage) => passage,
        _ => panic!("somebody leads already"),
    }
}

fn follower(flights: &Arc<Flights>, wants: Wants) -> Passage {
    match flights.board(QUESTION, wants) {
        Boarded::Follower(passage) => passage,
        _ => panic!("nobody leads"),
    }
}

/// Notes that it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A client: polled only when woken, like a task.
struct Client {
    passage: Passage,
    woken: Arc<Flag>,
    got: Vec<u8>,
    end: Option<Result<(), Broken>>,
    /// Its connection takes nothing.
    stalled: bool,
}

impl Client {
    fn new(passage: Passage) -> Self {
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        Self {
            passage,
            woken,
            got: Vec::new(),
            end: None,
            stalled: false,
        }
    }

    /// Whether it was polled.
    fn run(&mut self) -> bool {
        if self.stalled || self.end.is_some() || !self.woken.0.swap(false, Ordering::SeqCst) {
            return false;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        while self.end.is_none() {
            match self.passage.poll_data(&mut context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(data))) => self.got.extend_from_slice(&data),
                Poll::Ready(Some(Err(broken))) => self.end = Some(Err(broken)),
                Poll::Ready(None) => self.end = Some(Ok(())),
            }
        }
        true
    }
}

fn run(clients: &mut [Client]) {
    while clients
        .iter_mut()
        .fold(false, |ran, client| client.run() | ran)
    {}
}

#[derive(Debug, Clone)]
enum Step {
    Join,
    Emit(u8),
    /// An event in two pieces.
    Halves,
    Stall(prop::sample::Index),
    Go(prop::sample::Index),
    Leave(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = any::<prop::sample::Index>;
    proptest::collection::vec(
        prop_oneof![
            3 => Just(Step::Join),
            4 => (0u8..4).prop_map(Step::Emit),
            1 => Just(Step::Halves),
            2 => at().prop_map(Step::Stall),
            2 => at().prop_map(Step::Go),
            2 => at().prop_map(Step::Leave),
        ],
        0..40,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whoever joins whenever, and whoever leaves or stops reading: everybody who stays gets all of it, nobody
    /// is forgotten asleep, and the generation runs exactly as long as somebody reads.
    #[test]
    fn everybody_who_stays_gets_everything(steps in steps()) {
        let flights = Arc::new(Flights::default());
        let (sender, source) = source();
        let mut clients = vec![Client::new(leader(&flights, EVENTS))];
        clients[0].passage.depart(source, None);
        sender.send(events_head()).unwrap();
        let mut said = String::new();
        for step in steps {
            if clients.is_empty() {
                break;
            }
            let count = clients.len();
            match step {
                Step::Join => clients.push(Client::new(follower(&flights, EVENTS))),
                Step::Emit(events) => {
                    let text: String = (0..events).map(|n| format!("data: {{\"x\":{n}}}\n\n")).collect();
                    said.push_str(&text);
                    sender.send(data(&text)).unwrap();
                }
                Step::Halves => {
                    said.push_str("data: {\"half\":1}\n\n");
                    sender.send(data("data: {\"ha")).unwrap();
                    run(&mut clients);
                    sender.send(data("lf\":1}\n\n")).unwrap();
                }
                Step::Stall(at) => clients[at.index(count)].stalled = true,
                Step::Go(at) => clients[at.index(count)].stalled = false,
                Step::Leave(at) => drop(clients.swap_remove(at.index(count))),
            }
            run(&mut clients);
            // Those who read have all there is, whoever else does not.
            for client in clients.iter().filter(|client| !client.stalled) {
                prop_assert_eq!(client.got.len(), said.len());
            }
        }
        prop_assert_eq!(sender.is_closed(), clients.is_empty());
        if clients.is_empty() {
            prop_assert_eq!(flights.count(), 0);
            prop_assert_eq!(flights.held_bytes(), 0);
            return Ok(());
        }
        said.push_str("data: [DONE]\n\n");
        sender.send(data("data: [DONE]\n\n")).unwrap();
        drop(sender);
        for client in &mut clients {
            client.stalled = false;
        }
        run(&mut clients);
        for client in &clients {
            prop_assert_eq!(std::str::from_utf8(&client.got).unwrap(), &said);
            prop_assert_eq!(client.end, Some(Ok(())));
        }
        drop(clients);
        prop_assert_eq!((flights.count(), flights.held_bytes()), (0, 0));
    }
}

#[test]
fn a_failure_is_told_to_those_who_had_the_beginning() {
    let flights = Arc::new(Flights::default());
    let (sender, source) = source();
    let mut clients = vec![Client::new(leader(&flights, EVENTS))];
    clients[0].passage.depart(source, None);
    sender.send(events_head()).unwrap();
    sender.send(data("data: {\"x\":1}\n\n")).unwrap();
    run(&mut clients);
    sender
        .send(data("data: {\"error\":{}}\n\ndata: [DONE]\n\n"))
        .unwrap();
    run(&mut clients);
    let wanted = "data: {\"x\":1}\n\ndata: {\"error\":{}}\n\ndata: [DONE]\n\n";
    assert_eq!(std::str::from_utf8(&clients[0].got).unwrap(), wanted);
    assert_eq!(clients[0].end, Some(Ok(())));
    assert!(sender.is_closed());
    // Whoever comes now leads an attempt of its own.
    drop(leader(&flights, EVENTS));
}

#[tokio::test]
async fn a_failure_before_anything_was_read_sends_followers_on() {
    for failure in [
        Err(Broken),
        head(StatusCode::SERVICE_UNAVAILABLE, "application/json"),
    ] {
        let flights = Arc::new(Flights::default());
        let (sender, source) = source();
        let first = leader(&flights, EVENTS);
        let second = follower(&flights, EVENTS);
        first.depart(source, None);
        sender.send(failure).unwrap();
        drop(sender);
        assert_eq!(second.arrival(true).await, View::Failed);
    }
}

#[tokio::test]
async fn a_refusal_is_the_same_for_everybody() {
    let flights = Arc::new(Flights::default());
    let (sender, source) = source();
    let first = leader(&flights, Wants::default());
    let second = follower(&flights, Wants::default());
    first.depart(source, None);
    sender
        .send(head(StatusCode::BAD_REQUEST, "application/json"))
        .unwrap();
    sender.send(data("{}")).unwrap();
    drop(sender);
    assert_eq!(second.arrival(false).await, View::Landed);
    assert_eq!(second.all().await, Some(Ok(Bytes::from_static(b"{}"))));
    assert_eq!(first.all().await, Some(Ok(Bytes::from_static(b"{}"))));
}

#[tokio::test]
async fn a_leader_that_leaves_before_it_asked_does_not_leave_others_waiting() {
    let flights = Arc::new(Flights::default());
    let first = leader(&flights, EVENTS);
    let second = follower(&flights, EVENTS);
    drop(first);
    assert_eq!(second.arrival(true).await, View::Failed);
}

#[tokio::test]
async fn a_source_that_panics_fails_the_flight_and_nothing_else() {
    let flights = Arc::new(Flights::default());
    let first = leader(&flights, EVENTS);
    let second = follower(&flights, EVENTS);
    first.depart(
        Box::pin(stream::poll_fn(|_| panic!("a test's panic"))),
        None,
    );
    let led = tokio::spawn(async move { first.head().await.is_some() }).await;
    assert!(led.is_err());
    assert_eq!(second.arrival(true).await, View::Failed);
}

#[test]
fn a_landed_flight_can_be_joined_until_it_was_kept() {
    let flights = Arc::new(Flights::default());
    let kept: Arc<Mutex<Option<Arc<Flight>>>> = Arc::default();
    let (sender, source) = source();
    let mut clients = vec![Client::new(leader(&flights, EVENTS))];
    let keeping = Arc::clone(&kept);
    let landed: Landed = Box::new(move |flight| *lock(&keeping) = Some(flight));
    clients[0].passage.depart(source, Some(landed));
    for part in [
        events_head(),
        data("data: {\"x\":1}\n\n"),
        data("data: [DONE]\n\n"),
    ] {
        sender.send(part).unwrap();
    }
    drop(sender);
    run(&mut clients);
    assert_eq!(clients[0].end, Some(Ok(())));
    drop(clients);
    let mut late = [Client::new(follower(&flights, EVENTS))];
    run(&mut late);
    assert_eq!(late[0].got, b"data: {\"x\":1}\n\ndata: [DONE]\n\n");
    let flight = lock(&kept).take().unwrap();
    assert_eq!(flight.followers(), 1);
    flight.close();
    drop(flight);
    drop(leader(&flights, EVENTS));
}

#[test]
fn more_than_there_is_room_for_is_forgotten_and_a_reader_far_behind_is_let_go() {
    let flights = Arc::new(Flights::default());
    let (sender, source) = source();
    let mut clients = vec![Client::new(leader(&flights, EVENTS))];
    clients[0].passage.depart(source, None);
    clients.push(Client::new(follower(&flights, EVENTS)));
    clients[1].stalled = true;
    sender.send(events_head()).unwrap();
    let event = format!("data: {{\"x\":\"{}\"}}\n\n", "y".repeat(1 << 20));
    let count = 2 * MAX_FLIGHT_BYTES / event.len();
    for _ in 0..count {
        sender.send(data(&event)).unwrap();
        run(&mut clients);
        assert!(flights.held_bytes() <= MAX_FLIGHT_BYTES + event.len());
    }
    // It cannot be joined any more: its beginning is gone.
    drop(leader(&flights, EVENTS));
    clients[1].stalled = false;
    clients[1].woken.0.store(true, Ordering::SeqCst);
    drop(sender);
    run(&mut clients);
    assert_eq!(clients[0].got.len(), count * event.len());
    assert_eq!(clients[0].end, Some(Ok(())));
    assert_eq!(clients[1].end, Some(Err(Broken)));
}

#[test]
fn readers_are_bounded() {
    let flights = Arc::new(Flights::default());
    let _first = leader(&flights, EVENTS);
    let _others: Vec<Passage> = (1..MAX_READERS)
        .map(|_| follower(&flights, EVENTS))
        .collect();
    assert!(matches!(flights.board(QUESTION, EVENTS), Boarded::Full));
}

#[test]
fn the_usage_is_for_those_who_asked() {
    let flights = Arc::new(Flights::default());
    let (sender, source) = source();
    let plain = Wants {
        stream: true,
        include_usage: false,
    };
    let mut clients = vec![Client::new(leader(&flights, plain))];
    clients[0].passage.depart(source, None);
    clients.push(Client::new(follower(&flights, EVENTS)));
    let piece = "data: {\"choices\":[{\"index\":0}],\"usage\":null}\n\n";
    let usage = "data: {\"choices\":[],\"usage\":{}}\n\n";
    for part in [
        events_head(),
        data(piece),
        data(usage),
        data("data: [DONE]\n\n"),
    ] {
        sender.send(part).unwrap();
    }
    drop(sender);
    run(&mut clients);
    let text = |client: &Client| String::from_utf8(client.got.clone()).unwrap();
    assert_eq!(
        text(&clients[0]),
        "data: {\"choices\":[{\"index\":0}]}\n\ndata: [DONE]\n\n"
    );
    assert_eq!(text(&clients[1]), format!("{piece}{usage}data: [DONE]\n\n"));
}
