;; Does nothing for three steps, then computes for ever. It asks for `learn`, so there is an adapter to save.
(import "tunebox:method/learn@0.2.0" "rate" (func $rate (result f64)))
(global $steps (mut i32) (i32.const 0))
(func $step (param i32) (result i32)
  (global.set $steps (i32.add (global.get $steps) (i32.const 1)))
  (if (i32.lt_u (global.get $steps) (i32.const 4)) (then (return (call $done))))
  (loop $again (br $again))
  (unreachable))
