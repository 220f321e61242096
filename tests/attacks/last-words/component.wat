;; Says why it gives up, in words that would clear a terminal, and traps.
(data (i32.const 256) "beta is \1b[2Jnegative")
(data (i32.const 512) "src/lib.rs")
(func $step (param i32) (result i32)
  (call $run/fault (i32.const 256) (i32.const 20) (i32.const 512) (i32.const 10) (i32.const 38) (i32.const 7))
  (unreachable))
