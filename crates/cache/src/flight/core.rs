//! The state of one flight: what has been said so far, and how far each reader is. Pure: whoever owns it
//! brings the pieces and the readers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};

use crate::fingerprint::Wants;
use crate::recording::{Event, EventKind, Splitter};

/// Most readers of one flight: enough for a stampede, and a wake-up of all of them stays below a millisecond.
pub(crate) const MAX_READERS: usize = 1024;

/// A frame ends when it has grown to this size, so that one who joins late is not given everything at once.
const FRAME_BYTES: usize = 64 << 10;

/// An answer's status line and headers.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
}

/// What comes out of a source.
#[derive(Debug)]
pub enum Part {
    /// Once, and first.
    Head(Head),
    /// A piece of the body.
    Data(Bytes),
}

/// The source broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer broke off")]
pub struct Broken;

/// What a body is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An answer in events.
    Events,
    /// An answer in one piece.
    Whole,
    /// A refusal that everyone who asks the same would get.
    Refusal,
    /// A failure, which says nothing about the next attempt.
    Failure,
}

impl Form {
    fn of(head: &Head) -> Self {
        match head.status {
            StatusCode::OK => {
                let kind = head.headers.get(header::CONTENT_TYPE);
                let kind = kind.map_or(&b""[..], |kind| kind.as_bytes());
                if kind.starts_with(protocol::headers::EVENT_STREAM.as_bytes()) {
                    Self::Events
                } else {
                    Self::Whole
                }
            }
            StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => Self::Refusal,
            _ => Self::Failure,
        }
    }
}

/// How far a flight has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Flying,
    /// All was said.
    Landed,
    /// What those get who had the beginning already.
    Failed(Result<Bytes, Broken>),
}

/// Names a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReaderId(u64);

impl ReaderId {
    /// Reads nothing.
    pub(crate) const NOBODY: Self = Self(0);
}

#[derive(Debug)]
struct Reader {
    /// The number of the next piece.
    next: usize,
    wants: Wants,
    /// Whether it was told how it ended.
    ended: bool,
    waker: Option<Waker>,
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// More of the body.
    Data(Bytes),
    /// Nothing yet.
    Wait,
    /// Nothing more.
    End,
    /// The body breaks off here.
    Broken,
}

/// What somebody who waits for the whole or the beginning finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum View {
    /// Neither is there yet.
    Wait,
    /// Events are there to be read.
    Streaming,
    /// All is there.
    Landed,
    /// It will never all be there.
    Sealed,
    /// It failed.
    Failed,
}

/// One flight.
#[derive(Debug)]
pub(crate) struct Core {
    head: Option<(Arc<Head>, Form)>,
    phase: Phase,
    splitter: Splitter,
    pieces: VecDeque<Event>,
    /// The number of the first piece that is still held.
    first: usize,
    bytes: usize,
    /// Most bytes held.
    room: usize,
    /// Whether pieces are forgotten, so that nobody can join any more.
    sealed: bool,
    readers: BTreeMap<ReaderId, Reader>,
    last_reader: u64,
}

impl Core {
    pub(crate) fn new(room: usize) -> Self {
        Self {
            head: None,
            phase: Phase::Flying,
            splitter: Splitter::default(),
            pieces: VecDeque::new(),
            first: 0,
            bytes: 0,
            room,
            sealed: false,
            readers: BTreeMap::new(),
            last_reader: 0,
        }
    }

    /// A new reader, from the beginning. `None` where there is no more room or no beginning.
    pub(crate) fn join(&mut self, wants: Wants) -> Option<ReaderId> {
        let open = !self.sealed && !matches!(self.phase, Phase::Failed(_));
        if !open || self.readers.len() >= MAX_READERS {
            return None;
        }
        self.last_reader += 1;
        let id = ReaderId(self.last_reader);
        let reader = Reader {
            next: 0,
            wants,
            ended: false,
            waker: None,
        };
        self.readers.insert(id, reader);
        Some(id)
    }

    /// A reader leaves. Whether nobody is left to read what still comes; then nobody can join either.
    pub(crate) fn leave(&mut self, id: ReaderId) -> bool {
        self.readers.remove(&id);
        let is_deserted = self.readers.is_empty() && self.phase == Phase::Flying;
        self.sealed |= is_deserted;
        self.forget_what_all_have();
        is_deserted
    }

    /// Wakes the reader when there is news.
    pub(crate) fn wake_later(&mut self, id: ReaderId, waker: &Waker) {
        if let Some(reader) = self.readers.get_mut(&id) {
            match &mut reader.waker {
                Some(old) => old.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
    }

    /// Everybody who waits.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        self.readers
            .values_mut()
            .filter_map(|reader| reader.waker.take())
            .collect()
    }

    /// Takes in what came out of the source; `None` is its end.
    pub(crate) fn take_in(&mut self, part: Option<Result<Part, Broken>>) {
        if self.phase != Phase::Flying {
            return;
        }
        match (part, self.form()) {
            (Some(Ok(Part::Head(head))), None) => {
                let form = Form::of(&head);
                self.head = Some((Arc::new(head), form));
            }
            (Some(Ok(Part::Data(bytes))), Some(Form::Events)) => self.take_in_events(bytes),
            (Some(Ok(Part::Data(bytes))), Some(_)) => {
                let kind = EventKind::Chunk;
                self.hold(Event { kind, bytes });
            }
            (None, Some(Form::Failure)) => self.phase = Phase::Landed,
            (None, Some(_)) if self.splitter.pending() == 0 => self.phase = Phase::Landed,
            _ => self.phase = Phase::Failed(Err(Broken)),
        }
        self.forget_what_all_have();
    }

    fn take_in_events(&mut self, bytes: Bytes) {
        let mut splitter = std::mem::take(&mut self.splitter);
        let mut trouble: Option<BytesMut> = None;
        splitter.push(bytes, |event| match (&mut trouble, event.kind) {
            (Some(trouble), _) => trouble.extend_from_slice(&event.bytes),
            (none, EventKind::Error) => *none = Some(event.bytes.as_ref().into()),
            (None, _) => self.hold(event),
        });
        self.splitter = splitter;
        if self.splitter.pending() > protocol::sse::MAX_EVENT_BYTES {
            self.phase = Phase::Failed(Err(Broken));
        } else if let Some(mut trouble) = trouble {
            if !trouble.ends_with(protocol::sse::DONE) {
                trouble.extend_from_slice(protocol::sse::DONE);
            }
            self.phase = Phase::Failed(Ok(trouble.freeze()));
        }
    }

    fn hold(&mut self, event: Event) {
        self.bytes += event.bytes.len();
        self.pieces.push_back(event);
        if self.bytes > self.room {
            self.seal();
        }
    }

    /// From now on pieces are forgotten when all have them.
    pub(crate) fn seal(&mut self) {
        self.sealed = true;
        self.forget_what_all_have();
        // Whoever is further behind than there is room has lost the thread.
        while self.bytes > self.room && self.pieces.len() > 1 {
            self.forget_first();
        }
    }

    fn forget_what_all_have(&mut self) {
        if !self.sealed {
            return;
        }
        let slowest = self.readers.values().map(|reader| reader.next).min();
        while !self.pieces.is_empty() && slowest.is_none_or(|next| self.first < next) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(event) = self.pieces.pop_front() {
            self.bytes -= event.bytes.len();
            self.first += 1;
        }
    }

    /// What comes next for a reader.
    pub(crate) fn next(&mut self, id: ReaderId) -> Next {
        let Some(reader) = self.readers.get_mut(&id) else {
            return Next::End;
        };
        if reader.ended {
            return Next::End;
        }
        let Some(skip) = reader.next.checked_sub(self.first) else {
            reader.ended = true;
            return Next::Broken;
        };
        let mut frame = Frame::default();
        for event in self.pieces.range(skip.min(self.pieces.len())..) {
            if frame.len() >= FRAME_BYTES {
                break;
            }
            reader.next += 1;
            frame.push(shown(event, reader.wants));
        }
        if let Some(data) = frame.finish() {
            self.forget_what_all_have();
            return Next::Data(data);
        }
        match &self.phase {
            Phase::Flying => Next::Wait,
            Phase::Landed => Next::End,
            Phase::Failed(last) => {
                reader.ended = true;
                match last {
                    Ok(last) => Next::Data(last.clone()),
                    Err(Broken) => Next::Broken,
                }
            }
        }
    }

    /// What somebody finds who has read nothing yet.
    pub(crate) fn view(&self) -> View {
        match (&self.phase, self.form()) {
            (Phase::Failed(_), _) | (Phase::Landed, None | Some(Form::Failure)) => View::Failed,
            _ if self.sealed => View::Sealed,
            (Phase::Landed, _) => View::Landed,
            (Phase::Flying, Some(Form::Events)) if !self.pieces.is_empty() => View::Streaming,
            (Phase::Flying, _) => View::Wait,
        }
    }

    pub(crate) fn form(&self) -> Option<Form> {
        self.head.as_ref().map(|(_, form)| *form)
    }

    pub(crate) fn head(&self) -> Option<Arc<Head>> {
        self.head.as_ref().map(|(head, _)| Arc::clone(head))
    }

    /// Whether an answer has all come and all of it is here.
    pub(crate) fn is_whole(&self) -> bool {
        let is_answer = matches!(self.form(), Some(Form::Events | Form::Whole));
        is_answer && self.phase == Phase::Landed && !self.sealed
    }

    /// The pieces that are here.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Event> {
        self.pieces.iter()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase != Phase::Flying
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.splitter.pending()
    }

    /// How many ever read it.
    pub(crate) fn joined(&self) -> u64 {
        self.last_reader
    }

    pub(crate) fn readers(&self) -> usize {
        self.readers.len()
    }
}

/// An event as one reader sees it.
fn shown(event: &Event, wants: Wants) -> Bytes {
    match event.kind {
        EventKind::Usage if wants.stream && !wants.include_usage => Bytes::new(),
        EventKind::Chunk if wants.stream && !wants.include_usage => event.without_usage(),
        _ => event.bytes.clone(),
    }
}

/// Pieces that go out together; a single one is not copied.
#[derive(Default)]
struct Frame {
    first: Bytes,
    more: BytesMut,
}

impl Frame {
    fn len(&self) -> usize {
        self.first.len() + self.more.len()
    }

    fn push(&mut self, bytes: Bytes) {
        if self.first.is_empty() && self.more.is_empty() {
            self.first = bytes;
            return;
        }
        if self.more.is_empty() {
            self.more
                .extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.more.extend_from_slice(&bytes);
    }

    fn finish(self) -> Option<Bytes> {
        let all = if self.more.is_empty() {
            self.first
        } else {
            self.more.freeze()
        };
        (!all.is_empty()).then_some(all)
    }
}
