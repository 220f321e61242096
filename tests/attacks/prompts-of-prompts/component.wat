;; Takes the prompts of prompts, which have no target.
(import "tunebox:method/data@0.2.0" "[method]batch.rows" (func $rows (param i32 i32 i32 i32)))
(import "tunebox:method/data@0.2.0" "[method]rows.prompts" (func $prompts (param i32 i32)))
(data (i32.const 256) "example")
(func $step (param $batch i32) (result i32)
  (call $rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $prompts (call $handle) (i32.const 64))
  (call $prompts (call $handle) (i32.const 64))
  (call $pass-on))
