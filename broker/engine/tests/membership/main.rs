//! Who is in a group and works on what: by example, and in a world that loses and delays messages.

mod assigned;
mod led;
mod led_world;
mod world;
