//! Goldens as a user meets them: recorded, opened, changed behind Goldline's back, replaced, and
//! recorded while the machine dies or the disk is full.

mod approve;
mod change;
mod crash;
mod fixture;
mod in_place;
mod noise;
mod tamper;
