;; Logs bytes that are not text.
(data (i32.const 256) "\ff\fe")
(func $step (param i32) (result i32)
  (call $run/log (i32.const 256) (i32.const 2))
  (call $done))
