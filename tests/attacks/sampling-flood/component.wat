;; Lets the model write for ever, and drops what it wrote.
(data (i32.const 256) "example")
(func $step (param $batch i32) (result i32)
  (local $rows i32) (local $view i32) (local $sampler i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (local.set $rows (call $handle))
  (local.set $view (call $model/policy))
  (local.set $sampler (call $sample/sampler.new))
  (call $sample/sampler.completions (local.get $sampler) (i32.const 2048) (i32.const 64))
  (loop $again
    (call $sample/generate (local.get $view) (local.get $rows) (local.get $sampler) (i32.const 64))
    (call $sample/completions.drop (call $handle))
    (br $again))
  (unreachable))
