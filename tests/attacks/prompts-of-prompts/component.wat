;; Takes the prompts of prompts, which have no target.
(data (i32.const 256) "example")
(func $step (param $batch i32) (result i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $data/rows.prompts (call $handle) (i32.const 64))
  (call $data/rows.prompts (call $handle) (i32.const 64))
  (call $pass-on))
