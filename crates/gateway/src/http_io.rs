//! Reading bodies within bounds and answering in OpenAI's shape: the only place that turns refusals
//! and values into HTTP.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use protocol::limits::MAX_BODY_BYTES;
use protocol::{ApiError, ErrorKind, headers};
use serde::Serialize;

/// A body that trickles in longer than this is given up.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What is read and thrown away of a refused body before the connection is closed on its sender.
const MAX_DISCARDED_BYTES: usize = 4 * MAX_BODY_BYTES;

/// And how long its sender is waited for.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads a JSON body within [`MAX_BODY_BYTES`] and [`BODY_TIMEOUT`].
pub(crate) async fn read_json_body(headers: &HeaderMap, mut body: Body) -> Result<Bytes, ApiError> {
    let read = tokio::time::timeout(BODY_TIMEOUT, collect(headers, &mut body)).await;
    let refusal = match read {
        Ok(Ok(bytes)) => return Ok(bytes),
        Ok(Err(refusal)) => refusal,
        Err(_) => {
            return Err(ApiError::new(
                ErrorKind::Timeout,
                format!(
                    "the body did not arrive within {} s",
                    BODY_TIMEOUT.as_secs()
                ),
            ));
        }
    };
    // Most clients read the answer only after they have sent everything; closing on them earlier
    // would hide the refusal behind a broken pipe.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, discard(&mut body)).await;
    Err(refusal)
}

async fn collect(headers: &HeaderMap, body: &mut Body) -> Result<Bytes, ApiError> {
    require_json(headers)?;
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok())
        .and_then(|length| length.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    // Most bodies come in one piece, which is kept as it is.
    let Some(first) = next_piece(body).await? else {
        return Ok(Bytes::new());
    };
    if announced == Some(first.len()) {
        return Ok(first);
    }
    // Room is made when a first piece is here: an announcement alone costs its sender nothing.
    let mut collected = BytesMut::with_capacity(announced.unwrap_or(0).max(first.len()));
    let mut piece = Some(first);
    while let Some(data) = piece {
        if collected.len() + data.len() > MAX_BODY_BYTES {
            return Err(too_large());
        }
        collected.extend_from_slice(&data);
        piece = next_piece(body).await?;
    }
    Ok(collected.freeze())
}

async fn next_piece(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::new(
                ErrorKind::InvalidRequest,
                format!("the body could not be read: {error}"),
            )
        })?;
        // Trailers say nothing to us.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads what a refused client still sends, up to [`MAX_DISCARDED_BYTES`].
async fn discard(body: &mut Body) {
    let mut discarded = 0;
    while let Some(Ok(frame)) = body.frame().await {
        discarded += frame.data_ref().map_or(0, Bytes::len);
        if discarded > MAX_DISCARDED_BYTES {
            return;
        }
    }
}

fn too_large() -> ApiError {
    ApiError::new(
        ErrorKind::TooLarge,
        format!("the body is larger than {MAX_BODY_BYTES} bytes; send less in one request"),
    )
}

/// Forms are refused because that is what `curl -d` sends by default; no declaration at all is taken
/// for JSON.
fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(declared) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let media_type = declared
        .to_str()
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let subtype = media_type.strip_prefix("application/");
    if subtype.is_some_and(|subtype| subtype == "json" || subtype.ends_with("+json")) {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorKind::UnsupportedMediaType,
        format!("content-type {media_type:?} is not JSON; send \"content-type: application/json\""),
    ))
}

/// A refusal as an answer.
pub(crate) fn refuse(error: &ApiError) -> Response {
    let status =
        StatusCode::from_u16(error.kind().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_bytes(error.to_json());
    *response.status_mut() = status;
    if let Some(seconds) = error.retry_after_seconds() {
        response
            .headers_mut()
            .insert(headers::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.kind() == ErrorKind::Authentication {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A value as an answer.
pub(crate) fn json<T: Serialize>(value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => json_bytes(body),
        Err(error) => refuse(&ApiError::new(
            ErrorKind::Internal,
            format!("the answer could not be written: {error}"),
        )),
    }
}

fn json_bytes(body: Vec<u8>) -> Response {
    let content_type = HeaderValue::from_static(headers::JSON);
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}
