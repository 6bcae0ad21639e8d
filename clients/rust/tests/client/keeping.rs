//! Tokens that run out while something is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use felix_client::TokenSource;
use felix_wire::error::{Code, Failure};
use felix_wire::extension::{Expiring, Extension, Refused, Renew, Renewed, Request};
use felix_wire::frame::Incoming;

use super::fake::{FakeBroker, FakeConn, FakeStream, serving_calls};

/// Numbered tokens, and how many were asked for.
fn numbered() -> (TokenSource, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let source = TokenSource::provider({
        let asked = Arc::clone(&asked);
        move || {
            let number = asked.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, String>(format!("token-{number}")) }
        }
    });
    (source, asked)
}

/// The stream that keeps tokens, opened and welcomed.
async fn keeper(conn: &FakeConn) -> FakeStream {
    let mut stream = conn.stream().await;
    let auth = stream.welcome(&serving_calls()).await;
    assert_eq!(auth.extensions, [Extension::Reauth.name()]);
    stream
}

async fn renewal(keeper: &mut FakeStream) -> (u64, Renew) {
    let Some(Incoming::Extension(frame)) = keeper.frame().await else {
        panic!("no frame of an extension")
    };
    let correlation = frame.correlation;
    match frame.request(Extension::ALL.into_iter().collect()) {
        Ok(Request::Renew(renew)) => (correlation, renew),
        other => panic!("not a renewal: {other:?}"),
    }
}

#[tokio::test]
async fn a_token_that_runs_out_is_renewed_on_a_stream_of_its_own() {
    let broker = FakeBroker::start();
    let (source, _) = numbered();
    let builder = broker.builder().token_source(source);
    let (_client, conn, mut pipe) = broker.calling(builder).await;
    let mut keeper = keeper(&conn).await;
    // The publish stream hears of it as well, and is none the worse for it.
    let notice = Expiring { left_ms: 1_000 }.encode(7);
    pipe.write(notice.clone()).await;
    keeper.write(notice).await;
    let (correlation, renew) = renewal(&mut keeper).await;
    assert_eq!((renew.identity, renew.token.as_str()), (7, "token-0"));
    keeper
        .write(Renewed { left_ms: 9_000 }.encode(correlation))
        .await;
    keeper.write(Expiring { left_ms: 1_000 }.encode(8)).await;
    assert_eq!(renewal(&mut keeper).await.1.identity, 8);
}

#[tokio::test]
async fn a_token_that_is_not_taken_is_replaced_once() {
    let broker = FakeBroker::start();
    let (source, asked) = numbered();
    let builder = broker.builder().token_source(source);
    let (_client, conn, _pipe) = broker.calling(builder).await;
    let mut keeper = keeper(&conn).await;
    keeper.write(Expiring { left_ms: 1_000 }.encode(7)).await;
    let failure = Failure::new(Code::Unauthenticated, "no").with_reason("token_expired");
    for token in ["token-0", "token-1"] {
        let (correlation, renew) = renewal(&mut keeper).await;
        assert_eq!(renew.token, token);
        keeper
            .write(Refused::from(failure.clone()).encode(correlation))
            .await;
    }
    // It gives this identity up, and goes on with the next.
    keeper.write(Expiring { left_ms: 1_000 }.encode(8)).await;
    assert_eq!(renewal(&mut keeper).await.1.identity, 8);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}
