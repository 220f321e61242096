;; Scores the same rows for ever, each time a pass through the model, and drops the scores.
(data (i32.const 256) "example")
(func $step (param $batch i32) (result i32)
  (local $rows i32) (local $view i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (local.set $rows (call $handle))
  (local.set $view (call $model/policy))
  (loop $again
    (call $model/score (local.get $view) (local.get $rows) (i32.const 0) (i32.const 0) (f32.const 1) (i32.const 64))
    (call $model/scores.drop (call $handle))
    (br $again))
  (unreachable))
