//! The byte stream to a server, for every backend that has one: TCP, or TLS over it.
//!
//! TLS is rustls with ring everywhere, so that `ca=`, `cert=`, `key=` and `server_name=` mean the same in every URL and
//! nothing needs OpenSSL.

use std::{fmt, io, path::PathBuf, sync::Arc, time::Duration};

use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use crate::{
    connect::Url,
    driver::Fail,
    error::{Error, ErrorKind},
    secret::Address,
};

/// How long the other side's machine may leave bytes unacknowledged.
const SILENCE: Duration = Duration::from_secs(6);

/// Whom to trust in TLS, and how to show who we are.
#[derive(Clone, Default)]
#[cfg_attr(
    not(any(feature = "redis", feature = "etcd")),
    allow(unreachable_pub, reason = "shown by the backends whose transport is public")
)]
pub struct Tls {
    /// A PEM file of the authorities to trust, instead of the system's.
    pub ca: Option<PathBuf>,
    /// PEM files of the client's certificate chain and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have, if it is not the host's.
    pub server_name: Option<String>,
}

impl Tls {
    /// Takes the options `ca`, `cert`, `key` and `server_name` out of `url`; `Some` if its scheme is the one with TLS,
    /// `secure`.
    pub(crate) fn from_url(url: &mut Url, secure: &str) -> Result<Option<Self>, Error> {
        let invalid = |text: String| Error::new(ErrorKind::Invalid, text);
        let identity = match (url.take("cert"), url.take("key")) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            _ => return Err(invalid("the url has only one of cert= and key=; give both or neither".into())),
        };
        let tls = Self { ca: url.take("ca").map(Into::into), identity, server_name: url.take("server_name") };
        if url.scheme == secure {
            return Ok(Some(tls));
        }
        if tls.ca.is_some() || tls.identity.is_some() || tls.server_name.is_some() {
            return Err(invalid(format!(
                "the url has options of TLS and the scheme {}; write {secure}:// or remove ca, cert, key and server_name",
                url.scheme
            )));
        }
        Ok(None)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("ca", &self.ca).finish_non_exhaustive()
    }
}

/// A stream of either kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to `address`, which messages call `name`.
///
/// `alpn` is what to call the protocol in the handshake, where its servers want it named.
pub(crate) async fn connect(
    address: &Address,
    tls: Option<&Tls>,
    name: &str,
    alpn: Option<&[u8]>,
) -> Result<Box<dyn Stream>, Fail> {
    let unreached = |error: io::Error| Fail::Unavailable(format!("cannot reach {name}: {error}"));
    // Read before anything is sent: what is wrong with them no retry mends.
    let tls = tls.map(|tls| client(tls, &address.host)).transpose()?;
    let socket = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(unreached)?;
    patience(&socket).map_err(unreached)?;
    match tls {
        None => Ok(Box::new(socket)),
        Some((mut config, peer)) => {
            config.alpn_protocols = alpn.map(<[u8]>::to_vec).into_iter().collect();
            match TlsConnector::from(Arc::new(config)).connect(peer, socket).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => Err(refused(name, &error)),
            }
        }
    }
}

/// Requests are small and one waits for each. A machine that has vanished says nothing: the kernel gives up on it, and a new
/// connection finds whoever has its address now.
fn patience(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SILENCE / 2)?;
    sockopt::set_tcp_keepintvl(socket, SILENCE / 2)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(socket, SILENCE.as_millis() as u32)?;
    Ok(())
}

/// A failed handshake: what the certificate lacks no retry mends, a cut connection it may.
fn refused(name: &str, error: &io::Error) -> Fail {
    match error.kind() {
        io::ErrorKind::InvalidData if error.to_string().contains("corrupt message") => Fail::Invalid(
            format!("{name} answers without TLS; write the scheme without its last s if that is intended"),
        ),
        io::ErrorKind::InvalidData => Fail::Denied(format!("the TLS handshake with {name} failed: {error}")),
        _ => Fail::Unavailable(format!("the TLS handshake with {name} was cut: {error}")),
    }
}

/// What a handshake with `host` needs, read from the files that are named.
pub(crate) fn client(tls: &Tls, host: &str) -> Result<(ClientConfig, ServerName<'static>), Fail> {
    let invalid = |what: &str, error: &dyn std::fmt::Display| Fail::Invalid(format!("{what}: {error}"));
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(path) => {
            for certificate in read_certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|e| invalid("ca= holds a certificate that cannot be used", &e))?;
            }
        }
        None => {
            // Some systems have a broken certificate among many good ones.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(Fail::Invalid(
            "no certificate authority to trust was found; name a PEM file with ca=".into(),
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| Fail::Internal(e.to_string()))?
        .with_root_certificates(roots);
    let config = match &tls.identity {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let key_file = key.display();
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| {
                invalid(&format!("key= names a file without a usable key, path={key_file}"), &e)
            })?;
            config
                .with_client_auth_cert(read_certificates(cert)?, key)
                .map_err(|e| invalid("cert= and key= cannot be used together", &e))?
        }
    };
    let name = tls.server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned()).map_err(|_| {
        Fail::Invalid(format!("no certificate can name the host {name:?}; name another with server_name="))
    })?;
    Ok((config, name))
}

fn read_certificates(path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, Fail> {
    let unusable =
        |why: String| Fail::Invalid(format!("cannot read certificates: {why}: path={}", path.display()));
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|e| unusable(e.to_string()))?.collect();
    match certificates.map_err(|e| unusable(e.to_string()))? {
        none if none.is_empty() => Err(unusable("the file holds none in PEM form".into())),
        some => Ok(some),
    }
}
