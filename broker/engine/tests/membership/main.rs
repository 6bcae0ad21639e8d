//! Who is in a group and works on what: by example, and in a world that loses and delays messages.

#[cfg(test)]
mod assigned;
#[cfg(test)]
mod led;
#[cfg(test)]
mod led_world;
#[cfg(test)]
mod world;
