;; Writes a thousand lines, each of which would clear a terminal.
(data (i32.const 256) "\1b[2J\1b]0;owned\07")
(func $step (param i32) (result i32)
  (local $left i32)
  (local.set $left (i32.const 1000))
  (loop $again
    (call $run/log (i32.const 256) (i32.const 14))
    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
  (call $done))
