//! Answers of something that is no control plane, which takes no more memory than an answer may have.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use felix_controlplane_client::{Api, CallFailed, TokenSource};

/// More than any answer may have.
const ENDLESS: u64 = 8 * 1024 * 1024 * 1024;

#[tokio::test]
async fn a_good_answer_without_end_is_given_up_where_none_of_ours_goes_on() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let url = serve(move |stream| pour(stream, "200 OK", &counted));
    let failed = api(&url).tenants().await.unwrap_err();
    assert!(matches!(failed, CallFailed::Malformed { .. }), "{failed}");
    assert!(
        failed.to_string().contains("more than 67108864 bytes"),
        "{failed}"
    );
    assert!(sent.load(Ordering::SeqCst) < ENDLESS / 8, "it was cut off");
}

#[tokio::test]
async fn a_refusal_without_end_is_given_up_as_well() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let url = serve(move |stream| pour(stream, "500 Internal Server Error", &counted));
    let failed = api(&url).tenants().await.unwrap_err();
    assert!(matches!(failed, CallFailed::Malformed { .. }), "{failed}");
    assert!(sent.load(Ordering::SeqCst) < ENDLESS / 8, "it was cut off");
}

#[tokio::test]
async fn a_listing_that_always_goes_on_ends() {
    let page = AtomicU64::new(0);
    let url = serve(move |stream| {
        let number = page.fetch_add(1, Ordering::SeqCst);
        let body = format!(r#"{{"items":[],"next_cursor":"{number}"}}"#);
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
    });
    let failed = api(&url).tenants().await.unwrap_err();
    assert!(failed.to_string().contains("pages"), "{failed}");
}

fn api(url: &str) -> Api {
    Api::new(url, TokenSource::None).unwrap()
}

/// Answers every connection's first request, on a thread for each.
fn serve(answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                if stream.read(&mut [0; 4096]).is_ok() {
                    answer(&mut stream);
                }
            });
        }
    });
    format!("http://{address}")
}

/// Sends a body until nobody reads it any more.
fn pour(stream: &mut TcpStream, status: &str, sent: &AtomicU64) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {ENDLESS}\r\n\r\n");
    let mut wrote = stream.write_all(head.as_bytes());
    let some = vec![b' '; 1024 * 1024];
    while wrote.is_ok() && sent.load(Ordering::SeqCst) < ENDLESS {
        wrote = stream.write_all(&some);
        sent.fetch_add(some.len() as u64, Ordering::SeqCst);
    }
}
