//! The browser gateway: WebSockets of browsers in front, the native protocol behind.
