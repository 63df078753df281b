//! Requests to the authority: a connection for each, by https, with a deadline and a bound on what is read.

use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use pollux_tls::{ClientConfig, server_name};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// For all of a request: authorities are slow when they are busy.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest answer: chains of certificates have some KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// What authorities know this program by.
const AGENT: &str = concat!("pollux-acme/", env!("CARGO_PKG_VERSION"));

/// What sends them.
#[derive(Clone)]
pub(crate) struct AcmeHttp(pub(crate) Arc<ClientConfig>);

impl AcmeHttp {
    /// Asks for a page.
    pub(crate) async fn get(&self, url: &str) -> Result<Bytes, String> {
        let request = Request::get(url).body(BodyWrapper::<Bytes>::default());
        let request = request.map_err(|error| format!("{url}: {error}"))?;
        let answer = answer(Arc::clone(&self.0), request).await?;
        let status = answer.status();
        if !status.is_success() {
            return Err(format!("{url} answers {status}; expected the directory of an authority"));
        }
        Ok(answer.into_body())
    }
}

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let config = Arc::clone(&self.0);
        Box::pin(async move {
            let answer = answer(config, request).await.map_err(|why| Error::Other(why.into()))?;
            Ok(BytesResponse::from(answer.map(Full::new)))
        })
    }
}

/// The answer to a request, or why there is none, with where it went.
async fn answer(
    config: Arc<ClientConfig>,
    request: Request<BodyWrapper<Bytes>>,
) -> Result<Response<Bytes>, String> {
    let uri = request.uri().clone();
    let wrong = || format!("{uri} is not where an authority is; expected https://HOST/…");
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https")).ok_or_else(wrong)?;
    let port = uri.port_u16().unwrap_or(443);
    let exchange = exchange(config, (host, port), request);
    let answered = tokio::time::timeout(REQUEST_TIMEOUT, exchange).await;
    let late = |_| format!("no answer within {} s", REQUEST_TIMEOUT.as_secs());
    let answered = answered.map_err(late).and_then(|answered| answered);
    answered.map_err(|why| format!("the authority at {host}:{port} can't be asked: {why}"))
}

async fn exchange(
    config: Arc<ClientConfig>,
    (host, port): (&str, u16),
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<Response<Bytes>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = server_name(bare)?;
    let tcp = TcpStream::connect((bare, port)).await.map_err(|error| error.to_string())?;
    let tls = TlsConnector::from(config).connect(name, tcp).await;
    let tls = tls.map_err(|error| {
        format!("TLS: {error}; --ca FILE names another authority for its own certificate")
    })?;
    let chain = |error: hyper::Error| {
        let cause = error.source().map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await.map_err(chain)?;
    // It ends with its connection, which ends with the answer.
    let driven = tokio::spawn(connection);
    let authority = if port == 443 { host.to_owned() } else { format!("{host}:{port}") };
    let authority = HeaderValue::try_from(authority).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, authority);
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    *request.uri_mut() = target.parse::<Uri>().map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(chain)?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    driven.abort();
    let body = body.map_err(|error| error.to_string())?;
    Ok(Response::from_parts(head, body.to_bytes()))
}
