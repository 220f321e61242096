;; Does nothing for three steps, then takes memory until there is none and writes to what it did not get. It asks for `learn`, so there is an adapter to save.
(import "tunebox:method/learn@0.2.0" "rate" (func $rate (result f64)))
(global $steps (mut i32) (i32.const 0))
(func $step (param i32) (result i32)
  (local $old i32)
  (global.set $steps (i32.add (global.get $steps) (i32.const 1)))
  (if (i32.lt_u (global.get $steps) (i32.const 4)) (then (return (call $done))))
  (loop $again
    (local.set $old (memory.grow (i32.const 256)))
    (i32.store (i32.mul (local.get $old) (i32.const 65536)) (i32.const 1))
    (br $again))
  (unreachable))
