//! Frames and the greeting as bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The most frames of one message: a replayed event has four.
pub(super) const MAX_FRAMES: usize = 8;

/// Length of a greeting.
pub(super) const GREETING_BYTES: usize = 64;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// What a peer did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the peer does not speak zmtp 3: check that this is the address of a zeromq socket")]
    NotZmtp,
    #[error("the peer wants zeromq's {0} security, which is not supported: switch it off there")]
    Security(&'static str),
    #[error("a frame of {bytes} bytes is over the limit of {limit} bytes")]
    FrameTooLong { bytes: u64, limit: usize },
    #[error("a message has more than {MAX_FRAMES} frames")]
    TooManyFrames,
    #[error("a command of the peer is malformed")]
    Command,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) command: bool,
    pub(super) more: bool,
    pub(super) body: Bytes,
}

/// Our side of the greeting.
pub(super) fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// Checks the peer's greeting.
pub(super) fn check_greeting(greeting: &[u8; GREETING_BYTES]) -> Result<(), FrameError> {
    if greeting[0] != 0xff || greeting[9] & 1 == 0 || greeting[10] < 3 {
        return Err(FrameError::NotZmtp);
    }
    match &greeting[12..17] {
        b"NULL\0" => Ok(()),
        b"PLAIN" => Err(FrameError::Security("plain")),
        b"CURVE" => Err(FrameError::Security("curve")),
        _ => Err(FrameError::Security("unknown")),
    }
}

/// Takes a whole frame off the buffer; `None` until it is all there.
pub(super) fn take_frame(buffer: &mut BytesMut, limit: usize) -> Result<Option<Frame>, FrameError> {
    let mut head = &buffer[..];
    if head.len() < 2 {
        return Ok(None);
    }
    let flags = head.get_u8();
    let bytes = if flags & LONG == 0 {
        u64::from(head.get_u8())
    } else if head.len() < 8 {
        return Ok(None);
    } else {
        head.get_u64()
    };
    let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= limit);
    let Some(length) = fits else {
        return Err(FrameError::FrameTooLong { bytes, limit });
    };
    if head.len() < length {
        let missing = length - head.len();
        buffer.reserve(missing);
        return Ok(None);
    }
    let head_length = buffer.len() - head.len();
    buffer.advance(head_length);
    Ok(Some(Frame {
        command: flags & COMMAND != 0,
        more: flags & MORE != 0,
        body: buffer.split_to(length).freeze(),
    }))
}

/// Writes a message of these frames.
pub(super) fn put_message(out: &mut BytesMut, frames: &[&[u8]]) {
    for (index, body) in frames.iter().enumerate() {
        let more = if index + 1 < frames.len() { MORE } else { 0 };
        put_frame(out, more, body);
    }
}

fn put_frame(out: &mut BytesMut, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(length) => {
            out.put_u8(flags);
            out.put_u8(length);
        }
        Err(_) => {
            out.put_u8(flags | LONG);
            out.put_u64(body.len() as u64);
        }
    }
    out.put_slice(body);
}

const READY: &[u8] = b"\x05READY";
const ERROR: &[u8] = b"\x05ERROR";
const SOCKET_TYPE: &[u8] = b"Socket-Type";

/// Writes the command that ends the handshake.
pub(super) fn put_ready(out: &mut BytesMut, socket_type: &str) {
    let mut body = BytesMut::from(READY);
    body.put_u8(SOCKET_TYPE.len() as u8);
    body.put_slice(SOCKET_TYPE);
    body.put_u32(socket_type.len() as u32);
    body.put_slice(socket_type.as_bytes());
    put_frame(out, COMMAND, &body);
}

/// What the peer's command says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Ready, with its socket's type.
    Ready(String),
    /// It refuses, and says why.
    Refused(String),
    /// Something that does not concern us.
    Other,
}

pub(super) fn read_command(body: &[u8]) -> Result<Command, FrameError> {
    if let Some(reason) = body.strip_prefix(ERROR) {
        let reason = reason.get(1..).unwrap_or_default();
        return Ok(Command::Refused(
            String::from_utf8_lossy(reason).into_owned(),
        ));
    }
    let Some(mut properties) = body.strip_prefix(READY) else {
        return Ok(Command::Other);
    };
    while !properties.is_empty() {
        let (name, rest) = split_short(properties).ok_or(FrameError::Command)?;
        let (value, rest) = split_long(rest).ok_or(FrameError::Command)?;
        if name.eq_ignore_ascii_case(SOCKET_TYPE) {
            return Ok(Command::Ready(String::from_utf8_lossy(value).into_owned()));
        }
        properties = rest;
    }
    Err(FrameError::Command)
}

fn split_short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

fn split_long(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 1 << 20;

    #[test]
    fn our_own_greeting_passes() {
        assert_eq!(check_greeting(&greeting()), Ok(()));
        let mut http = [0; GREETING_BYTES];
        http[..15].copy_from_slice(b"HTTP/1.1 400 Ba");
        assert_eq!(check_greeting(&http), Err(FrameError::NotZmtp));
        let mut curve = greeting();
        curve[12..17].copy_from_slice(b"CURVE");
        assert_eq!(check_greeting(&curve), Err(FrameError::Security("curve")));
    }

    #[test]
    fn an_absurd_length_is_refused_before_anything_is_stored() {
        let mut buffer =
            BytesMut::from(&[LONG, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..]);
        let capacity = buffer.capacity();
        assert!(matches!(
            take_frame(&mut buffer, LIMIT),
            Err(FrameError::FrameTooLong { .. })
        ));
        assert_eq!(buffer.capacity(), capacity);
    }

    #[test]
    fn ready_tells_the_socket_type() {
        let mut out = BytesMut::new();
        put_ready(&mut out, "SUB");
        let frame = take_frame(&mut out, LIMIT).unwrap().unwrap();
        assert!(frame.command && !frame.more);
        assert_eq!(read_command(&frame.body), Ok(Command::Ready("SUB".into())));
        assert_eq!(
            read_command(b"\x05ERROR\x03bad"),
            Ok(Command::Refused("bad".into()))
        );
        assert_eq!(read_command(b"\x04PING\0\0"), Ok(Command::Other));
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(
            frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 1..5),
            cut in 1_usize..50,
        ) {
            let mut wire = BytesMut::new();
            let bodies: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            put_message(&mut wire, &bodies);
            let mut buffer = BytesMut::new();
            let mut read = Vec::new();
            for piece in wire.chunks(cut) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = take_frame(&mut buffer, LIMIT).unwrap() {
                    prop_assert_eq!(frame.more, read.len() + 1 < frames.len());
                    read.push(frame.body.to_vec());
                }
            }
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_command(&bytes);
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = take_frame(&mut buffer, 64) {}
        }
    }
}
