//! One connection to one endpoint: gRPC over HTTP/2 over a stream of ours.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Uri, uri::PathAndQuery};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
    rt::{Executor, Sleep, Timer},
};
use hyper_util::rt::TokioIo;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Request, Status, Streaming,
    body::Body,
    client::Grpc,
    metadata::{Ascii, MetadataValue},
};
use tower_service::Service;

use super::{Call, Events, Options, codec::Raw, proto::path};
use crate::{
    driver::Fail,
    host::{Fut, Host},
    net,
};

/// How often a connection with an open stream is probed. etcd takes a client that asks more often than every five seconds for
/// a nuisance, and closes its connection.
const PROBE: Duration = Duration::from_secs(6);

/// How long a probe may stay unanswered.
const SILENCE: Duration = Duration::from_secs(3);

/// A reply may hold all that waits for one lock.
const MAX_REPLY: usize = 64 * 1024 * 1024;

/// What is sent with every request but its message.
pub(super) type Login = Option<MetadataValue<Ascii>>;

pub(super) struct Connection {
    /// The endpoint's place in the URL.
    pub(super) index: usize,
    sender: SendRequest<Body>,
    grpc: Grpc<Http2>,
    doubt: Arc<Doubt>,
}

/// Told to the streams of a connection on which a request stayed unanswered.
#[derive(Default)]
struct Doubt {
    is_doubted: AtomicBool,
    told: Notify,
}

impl Connection {
    /// Connects to one endpoint.
    pub(super) async fn open(options: &Options, index: usize, host: &Arc<dyn Host>) -> Result<Self, Fail> {
        let (address, name) = (&options.addresses[index], options.endpoint(index));
        let stream = net::connect(address, options.tls.as_ref(), &name, Some(b"h2")).await?;
        let tasks = Tasks(host.clone());
        let (sender, connection) = Builder::new(tasks.clone())
            .timer(tasks.clone())
            .keep_alive_interval(PROBE)
            .keep_alive_timeout(SILENCE)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Fail::Unavailable(format!("{name} closed the connection: {error}")))?;
        tasks.0.spawn(Box::pin(async move {
            // How it ended is told to whoever waits for a reply.
            let _ = connection.await;
        }));
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let origin: Uri = format!("{scheme}://{address}").parse().map_err(|_| {
            Fail::Invalid(format!("invalid url: the host cannot be written in a request: {name}"))
        })?;
        let grpc = Grpc::with_origin(Http2(sender.clone()), origin).max_decoding_message_size(MAX_REPLY);
        Ok(Self { index, sender, grpc, doubt: Arc::default() })
    }

    /// Whether a request can still be sent.
    pub(super) fn is_open(&self) -> bool {
        !self.doubt.is_doubted.load(Ordering::Relaxed) && !self.sender.is_closed()
    }

    /// Lets nobody rely on it any more. What is under way goes on.
    pub(super) fn doubt(&self) {
        self.doubt.is_doubted.store(true, Ordering::Relaxed);
        self.doubt.told.notify_waiters();
    }

    /// One request and its one reply.
    pub(super) async fn unary(&self, call: &Call, login: &Login) -> Result<Vec<u8>, Status> {
        let request = with_headers(call.body().to_vec(), login);
        let mut grpc = self.grpc.clone();
        ready(&mut grpc).await?;
        let reply = grpc.unary(request, PathAndQuery::from_static(call.path()), Raw).await?;
        Ok(reply.into_inner().into())
    }

    /// A stream of watches.
    pub(super) async fn watch(
        &self,
        asks: mpsc::UnboundedReceiver<Vec<u8>>,
        login: &Login,
    ) -> Result<Box<dyn Events>, Status> {
        let request = with_headers(UnboundedReceiverStream::new(asks), login);
        let mut grpc = self.grpc.clone();
        ready(&mut grpc).await?;
        let doubt = self.doubt.clone();
        let stream = grpc.streaming(request, PathAndQuery::from_static(path::WATCH), Raw).await?.into_inner();
        Ok(Box::new(Watching { stream, doubt }))
    }
}

async fn ready(grpc: &mut Grpc<Http2>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))
}

/// A member without a leader refuses at once what is marked so, instead of keeping it for seconds.
fn with_headers<T>(message: T, login: &Login) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(login) = login {
        request.metadata_mut().insert("token", login.clone());
    }
    request
}

struct Watching {
    stream: Streaming<Bytes>,
    doubt: Arc<Doubt>,
}

impl Events for Watching {
    fn next(&mut self) -> Fut<'_, Option<Vec<u8>>> {
        Box::pin(async move {
            let told = self.doubt.told.notified();
            if self.doubt.is_doubted.load(Ordering::Relaxed) {
                return None;
            }
            tokio::select! {
                biased;
                message = self.stream.message() => message.ok().flatten().map(Into::into),
                () = told => None,
            }
        })
    }
}

/// The HTTP/2 connection as `tonic` wants it.
#[derive(Clone)]
struct Http2(SendRequest<Body>);

impl Service<http::Request<Body>> for Http2 {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// The host, as `hyper` wants it.
#[derive(Clone)]
struct Tasks(Arc<dyn Host>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.spawn(Box::pin(task));
    }
}

impl Timer for Tasks {
    fn sleep(&self, by: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Nap(Mutex::new(self.0.sleep_until(self.0.now() + by))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }
}

/// In a lock that nobody ever waits for, since `hyper` wants to share it.
struct Nap(Mutex<Fut<'static, ()>>);

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(cx)
    }
}

impl Sleep for Nap {}
