// Drives the accelerator and its external memory; the protocol is that of main.cpp, on standard
// input and output. `interface.vh` is generated. Plain Verilog for Icarus.

`include "interface.vh"

module harness;
  localparam STDIN = 32'h8000_0000;
  localparam STDOUT = 32'h8000_0001;
  localparam QUEUE = 8;
  localparam MEM_BYTES = `MEM_WIDTH / 8;

  integer size, latency, interval, period, refresh;
  reg [`MEM_WIDTH-1:0] memory [0:`MEMORY_WORDS-1];

  reg clk, rst;
  reg [7:0] host_addr;
  reg host_write_en;
  reg [31:0] host_write_data;
  wire [31:0] host_read_data;
  reg read_request_ready, read_data_valid;
  wire read_request_valid, read_data_ready;
  wire [`BURST_WIDTH-1:0] read_request;
  reg [`MEM_WIDTH-1:0] read_data;
  reg write_request_ready, write_data_ready, write_written;
  wire write_request_valid, write_data_valid;
  wire [`BURST_WIDTH-1:0] write_request;
  wire [`WRITE_WIDTH-1:0] write_data;
`ifdef HAS_TRACE
  wire trace_retire, trace_o_valid, trace_s_valid;
  wire [`TRACE_WIDTH-1:0] trace_o_write, trace_s_write;
  wire events_word_valid;
  wire [`COMMAND_WIDTH-1:0] events_word;
  wire [`ENGINES*`EVENT_WIDTH-1:0] events_engines;
  wire [`CAUSES-1:0] events_array;
`endif

  top dut (
    .clk(clk),
    .rst(rst),
    .host__addr(host_addr),
    .host__write_en(host_write_en),
    .host__write_data(host_write_data),
    .host__read_data(host_read_data),
    .mem_read__request__payload(read_request),
    .mem_read__request__valid(read_request_valid),
    .mem_read__request__ready(read_request_ready),
    .mem_read__data__payload(read_data),
    .mem_read__data__valid(read_data_valid),
    .mem_read__data__ready(read_data_ready),
    .mem_write__request__payload(write_request),
    .mem_write__request__valid(write_request_valid),
    .mem_write__request__ready(write_request_ready),
    .mem_write__data__payload(write_data),
    .mem_write__data__valid(write_data_valid),
    .mem_write__data__ready(write_data_ready),
`ifdef HAS_TRACE
    .trace__retire(trace_retire),
    .trace__o_valid(trace_o_valid),
    .trace__o_write(trace_o_write),
    .trace__s_valid(trace_s_valid),
    .trace__s_write(trace_s_write),
    .events__word_valid(events_word_valid),
    .events__word(events_word),
    .events__engines(events_engines),
    .events__array(events_array),
`endif
    .mem_write__written(write_written),
    .mem_error(1'b0),
    .mem_reset(rst),
    .mem_forget(),
    .irq()
  );

  // Bursts that were requested, oldest at the head: word address, words left, cycle of the first.
  integer read_addr [0:QUEUE-1], read_words [0:QUEUE-1], read_time [0:QUEUE-1];
  integer read_head, read_count, next_read;
  integer write_addr [0:QUEUE-1], write_words [0:QUEUE-1];
  integer write_head, write_count, next_write;
  integer written_time [0:255];
  reg [7:0] written_head, written_tail;
  integer now, slot, index;
  reg open, offered;

  reg [63:0] sum;
  reg [63:0] sums [0:65535];
  integer sum_count;

  // What is noted of a run: cycle and code of each event, and the sums of the present window.
  localparam SUMS = `CAUSES + 2;
  localparam EVENTS = 262144;
  localparam [3:0] WORD = 0, OFFERED = 1, DONE = 2, LACKING = 3, SUM = 4;
  integer window, origin, window_first, window_cycles, engine;
  integer event_count;
  reg recording;
  reg [31:0] event_cycles [0:EVENTS-1];
  reg [47:0] event_codes [0:EVENTS-1];
  reg [`ENGINES-1:0] event_open;
  reg [`EVENT_LACKING_WIDTH-1:0] event_lacking [0:`ENGINES-1];
  integer window_sums [0:SUMS-1], window_noted [0:SUMS-1];

  task fail(input [8*40-1:0] text, input [63:0] value);
    begin
      $display("error: %0s 0x%0h", text, value);
      $fflush(STDOUT);
      $finish;
      #1;
    end
  endtask

  function [63:0] splitmix64(input [63:0] start);
    reg [63:0] z;
    begin
      z = start + 64'h9e3779b97f4a7c15;
      z = (z ^ (z >> 30)) * 64'hbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 64'h94d049bb133111eb;
      splitmix64 = z ^ (z >> 31);
    end
  endfunction

  task check_burst(input [`BURST_WIDTH-1:0] burst);
    integer first, last;
    begin
      first = burst[`BURST_ADDR_LSB +: `BURST_ADDR_WIDTH];
      last = burst[`BURST_LAST_LSB +: `BURST_LAST_WIDTH];
      if (^burst === 1'bx) fail("undefined bits in a burst at cycle", now);
      if (first % MEM_BYTES != 0) fail("unaligned burst at", first);
      if (first + (last + 1) * MEM_BYTES > size) fail("outside external memory: address", first);
    end
  endtask

`ifdef HAS_TRACE
  task trace(input [`TRACE_WIDTH-1:0] write);
    integer count;
    reg [55:0] addr;
    begin
      addr = write[`TRACE_ADDR_LSB +: `TRACE_ADDR_WIDTH];
      count = write[`TRACE_COUNT_LSB +: `TRACE_COUNT_WIDTH];
      for (index = 0; index < count; index = index + 1) begin
        sum = sum + splitmix64({addr, write[`TRACE_DATA_LSB + 8 * index +: 8]});
        addr = addr + 1;
      end
    end
  endtask
`endif

  task note(input integer cycle, input [3:0] kind, input [3:0] place, input [39:0] value);
    begin
      if (event_count == EVENTS) fail("too many events at cycle", cycle);
      event_cycles[event_count] = cycle;
      event_codes[event_count] = {kind, place, value};
      event_count = event_count + 1;
    end
  endtask

  task begin_recording;
    begin
      recording = window != 0;
      origin = now;
      window_first = 0;
      window_cycles = 0;
      event_open = 0;
      for (index = 0; index < `ENGINES; index = index + 1) event_lacking[index] = 0;
      for (index = 0; index < SUMS; index = index + 1) begin
        window_sums[index] = 0;
        window_noted[index] = 0;
      end
    end
  endtask

  task close_window;
    begin
      for (index = 0; index < SUMS; index = index + 1) begin
        if (window_sums[index] != window_noted[index])
          note(window_first, SUM, index, window_sums[index]);
        window_noted[index] = window_sums[index];
        window_sums[index] = 0;
      end
      window_first = window_first + window_cycles;
      window_cycles = 0;
    end
  endtask

`ifdef HAS_TRACE
  task record;
    reg [`EVENT_WIDTH-1:0] happened;
    reg [`EVENT_LACKING_WIDTH-1:0] lacking;
    begin
      if (events_word_valid) note(now - origin, WORD, 0, events_word);
      for (engine = 0; engine < `ENGINES; engine = engine + 1) begin
        happened = events_engines[engine * `EVENT_WIDTH +: `EVENT_WIDTH];
        lacking = happened[`EVENT_LACKING_LSB +: `EVENT_LACKING_WIDTH];
        if (happened[`EVENT_DONE_LSB]) note(now - origin, DONE, engine, 0);
        if (happened[`EVENT_OFFERED_LSB] && !event_open[engine])
          note(now - origin, OFFERED, engine, 0);
        if (lacking != event_lacking[engine]) note(now - origin, LACKING, engine, lacking);
        event_open[engine] = happened[`EVENT_OFFERED_LSB] && !happened[`EVENT_TAKEN_LSB];
        event_lacking[engine] = lacking;
      end
      // The causes are those of the cycle before.
      for (index = 0; index < `CAUSES; index = index + 1)
        window_sums[index] = window_sums[index] + events_array[index];
      if (window_cycles == window) close_window;
      if (read_data_valid && read_data_ready)
        window_sums[`CAUSES] = window_sums[`CAUSES] + 1;
      if (write_data_valid && write_data_ready)
        window_sums[`CAUSES + 1] = window_sums[`CAUSES + 1] + 1;
      window_cycles = window_cycles + 1;
    end
  endtask
`endif

  task drive;
    begin
      open = period == 0 || now % period < period - refresh;
      read_request_ready = read_count < QUEUE;
      read_data_valid = offered
        || (open && read_count > 0 && read_time[read_head] <= now && next_read <= now);
      if (read_data_valid) read_data = memory[read_addr[read_head]];
      write_request_ready = write_count < QUEUE;
      write_data_ready = open && write_count > 0 && next_write <= now;
      write_written = written_head != written_tail && written_time[written_head] <= now;
    end
  endtask

  task sample;
    begin
      if (write_written) written_head = written_head + 1;
      offered = read_data_valid && !read_data_ready;  // stays until it is taken
      if (read_data_valid && read_data_ready) begin
        read_addr[read_head] = read_addr[read_head] + 1;
        read_words[read_head] = read_words[read_head] - 1;
        next_read = now + interval;
        if (read_words[read_head] == 0) begin
          read_head = (read_head + 1) % QUEUE;
          read_count = read_count - 1;
        end
      end
      if (write_data_valid && write_data_ready) begin
        for (index = 0; index < MEM_BYTES; index = index + 1)
          if (write_data[`WRITE_MASK_LSB + index])
            memory[write_addr[write_head]][8 * index +: 8] =
              write_data[`WRITE_DATA_LSB + 8 * index +: 8];
        write_addr[write_head] = write_addr[write_head] + 1;
        write_words[write_head] = write_words[write_head] - 1;
        next_write = now + interval;
        if (write_words[write_head] == 0) begin
          write_head = (write_head + 1) % QUEUE;
          write_count = write_count - 1;
          written_time[written_tail] = now + latency;
          written_tail = written_tail + 1;
        end
      end
      if (read_request_valid && read_request_ready) begin
        check_burst(read_request);
        slot = (read_head + read_count) % QUEUE;
        read_addr[slot] = read_request[`BURST_ADDR_LSB +: `BURST_ADDR_WIDTH] / MEM_BYTES;
        read_words[slot] = read_request[`BURST_LAST_LSB +: `BURST_LAST_WIDTH] + 1;
        read_time[slot] = now + latency;
        read_count = read_count + 1;
      end
      if (write_request_valid && write_request_ready) begin
        check_burst(write_request);
        slot = (write_head + write_count) % QUEUE;
        write_addr[slot] = write_request[`BURST_ADDR_LSB +: `BURST_ADDR_WIDTH] / MEM_BYTES;
        write_words[slot] = write_request[`BURST_LAST_LSB +: `BURST_LAST_WIDTH] + 1;
        write_count = write_count + 1;
      end
`ifdef HAS_TRACE
      if (trace_o_valid) trace(trace_o_write);
      if (trace_s_valid) trace(trace_s_write);
      if (trace_retire) begin
        sums[sum_count] = sum;
        sum_count = sum_count + 1;
        sum = 0;
      end
      if (recording) record;
`endif
    end
  endtask

  // One cycle: inputs at the low clock, outputs sampled when settled, then the edge.
  task clock;
    begin
      clk = 0;
      drive;
      #1 sample;
      clk = 1;
      #1 now = now + 1;
    end
  endtask

  integer items, start;
  reg [7:0] command;
  reg [63:0] first, second, third, fourth, word;
  integer count, offset, place;
  reg done;

  task write_memory;
    begin
      items = $fscanf(STDIN, " %h %h", first, second);
      if (first + second > size) fail("outside external memory: address", first);
      for (offset = 0; offset < second; offset = offset + 8) begin
        items = $fscanf(STDIN, " %h", word);
        for (index = 0; index < 8 && offset + index < second; index = index + 1) begin
          place = first + offset + index;
          memory[place / MEM_BYTES][8 * (place % MEM_BYTES) +: 8] = word[8 * index +: 8];
        end
      end
    end
  endtask

  task read_memory;
    begin
      items = $fscanf(STDIN, " %h %h", first, second);
      if (first + second > size) fail("outside external memory: address", first);
      for (offset = 0; offset < second; offset = offset + 8) begin
        word = 0;
        for (index = 0; index < 8 && offset + index < second; index = index + 1) begin
          place = first + offset + index;
          fourth = memory[place / MEM_BYTES] >> (8 * (place % MEM_BYTES));
          word[8 * index +: 8] = fourth[7:0];
        end
        $write("%h ", word);
      end
      $write("\n");
    end
  endtask

  task run;
    begin
      items = $fscanf(STDIN, " %h %h %h %h", first, second, third, fourth);
      start = now;
      host_addr = first;
      begin_recording;
      clock;
      done = 0;
      for (count = 0; count < fourth && !done; count = count + 1) begin
        clock;
        done = (host_read_data & second) === third[31:0];
      end
      if (recording && window_cycles != 0) close_window;
      recording = 0;
      $write("%0d %b\n", now - start, done);
    end
  endtask

  initial begin
    if (!$value$plusargs("size=%d", size)) size = 0;
    if (!$value$plusargs("latency=%d", latency)) latency = 0;
    if (!$value$plusargs("interval=%d", interval)) interval = 1;
    if (!$value$plusargs("refresh_period=%d", period)) period = 0;
    if (!$value$plusargs("refresh_cycles=%d", refresh)) refresh = 0;
    for (index = 0; index < `MEMORY_WORDS; index = index + 1) memory[index] = 0;
    {host_addr, host_write_en, host_write_data, read_data} = 0;
    read_head = 0;
    read_count = 0;
    next_read = 0;
    offered = 0;
    write_head = 0;
    write_count = 0;
    next_write = 0;
    written_head = 0;
    written_tail = 0;
    now = 0;
    sum = 0;
    window = 0;
    recording = 0;
    event_count = 0;
    rst = 1;
    repeat (4) clock;
    rst = 0;
    sum_count = 0;
    while ($fscanf(STDIN, " %c", command) == 1) begin
      case (command)
        "w": write_memory;
        "r": read_memory;
        "h": begin
          items = $fscanf(STDIN, " %h %h", first, second);
          host_addr = first;
          host_write_data = second;
          host_write_en = 1;
          clock;
          host_write_en = 0;
        end
        "g": begin
          items = $fscanf(STDIN, " %h", first);
          host_addr = first;
          clock;
          $write("%h\n", host_read_data);
        end
        "s": run;
        "t": begin
          $write("%h", sum_count);
          for (index = 0; index < sum_count; index = index + 1) $write(" %h", sums[index]);
          $write("\n");
          sum_count = 0;
          sum = 0;
        end
        "v": items = $fscanf(STDIN, " %h", window);
        "e": begin
          $write("%h", event_count);
          for (index = 0; index < event_count; index = index + 1)
            $write(" %h %h", event_cycles[index], event_codes[index]);
          $write("\n");
          event_count = 0;
        end
        default: fail("unknown command", command);
      endcase
      $fflush(STDOUT);
    end
    $finish;
  end
endmodule
