;; Gives a sampler texts to stop at until something stops it.
(data (i32.const 256) "example")
(func $step (param i32) (result i32)
  (local $handle i32)
  (local.set $handle (call $sample/sampler.new))
  (loop $more
    (call $sample/sampler.stop (local.get $handle) (i32.const 256) (i32.const 7) (i32.const 64))
    (br_if $more (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
