;; Logs bytes that are not text.
(import "tunebox:method/run@0.2.0" "log" (func $log (param i32 i32)))
(data (i32.const 256) "\ff\fe")
(func $step (param i32) (result i32)
  (call $log (i32.const 256) (i32.const 2))
  (call $done))
